"""Programs that use the clients: what importing costs them, what a start brings, and how Ctrl+C ends them."""

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

from headrace import Broker

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
            settings = ClientSettings.parse(bootstrap_servers="127.0.0.1:1", default_api_timeout_ms=600_000)
            await Cluster(settings).start()

        BackgroundLoop().run(start())
    """)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=WAIT_S)
    assert "KeyboardInterrupt" in errors
    assert process.returncode == -signal.SIGINT


def test_clients_and_broker_work_and_stop_after_the_main_thread_has_ended(tmp_path: Path) -> None:
    """A module starts threads and runs off its end. Python's executors take no new work from then on."""
    program = textwrap.dedent("""
        import logging, sys, threading
        from headrace import Admin, Broker, Producer, Queue, ShareConsumer

        logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
        broker = Broker(data_dir=sys.argv[1]).start()

        def work():
            threading.main_thread().join()
            own = {"bootstrap.servers": broker.bootstrap_servers}
            with Admin(own) as admin:
                admin.create_topic("t")
                admin.set_group_config("g", {"share.auto.offset.reset": "earliest"})
            with Producer(own) as producer:
                producer.send("t", b"by a producer").result()
            with Queue(broker.bootstrap_servers, group_id="g") as queue:
                queue.send("t", "by a queue")
            seen = []
            with ShareConsumer(own, group_id="g") as consumer:
                consumer.subscribe(["t"])
                while len(seen) < 2:
                    seen += [delivery.value for delivery in consumer.poll(1.0)]
            print(sorted(seen))
            broker.stop()

        threading.Thread(target=work).start()
    """)
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    assert "stopped clean=true" in done.stdout, done.stdout + done.stderr
    assert "by a producer" in done.stdout
    assert "by a queue" in done.stdout
    assert "Traceback" not in done.stderr
