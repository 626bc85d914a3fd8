"""Programs that use the clients: what importing costs them, what a start brings, and how Ctrl+C ends them."""

import signal
import subprocess
import sys
import textwrap

from headrace import Broker

PROMPTLY_S = 5.0
WAIT_S = 60.0


def test_importing_the_package_imports_no_part_of_it() -> None:
    program = "import headrace, sys; print([n for n in sys.modules if n.startswith('headrace.')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['headrace.version']"


def test_records_can_be_read_before_the_first_one_comes() -> None:
    """The import that reading needs takes longer than joining a group: importing us must not, the start must."""
    program = textwrap.dedent("""
        import sys
        from headrace import ShareConsumer

        def is_loaded():
            return "aiokafka.record.default_records" in sys.modules

        print(is_loaded())
        consumer = ShareConsumer(bootstrap_servers=sys.argv[1], group_id="g")
        consumer.subscribe(["nothing-comes"])
        while not is_loaded():
            consumer.poll(0.05)
        print(is_loaded())
        consumer.close()
    """)
    with Broker() as broker:
        done = subprocess.run(
            [sys.executable, "-c", program, broker.bootstrap_servers],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
        )
    assert done.stdout.split() == ["False", "True"], done.stderr


def test_ctrl_c_ends_a_program_that_waits_for_a_broker() -> None:
    """The whole way: a process that waits in `run`, and a signal from outside."""
    program = textwrap.dedent("""
        from headrace.client.background import BackgroundLoop
        from headrace.client.cluster import Cluster
        from headrace.client.settings import ClientSettings

        async def start():
            print("waiting", flush=True)
            await Cluster(ClientSettings.parse(bootstrap_servers="127.0.0.1:1")).start()

        BackgroundLoop().run(start())
    """)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PROMPTLY_S)
    assert "KeyboardInterrupt" in errors
    assert process.returncode == -signal.SIGINT
