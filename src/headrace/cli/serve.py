"""`headrace serve`: a broker as a process of its own."""

import signal
import sys
import threading
from pathlib import Path

from headrace.broker.addresses import first_listener, parse_address
from headrace.broker.embedded import Broker
from headrace.broker.logs import configure
from headrace.broker.settings import parse_assignments, read_properties
from headrace.log.disk import DirectoryLocked
from headrace.log.manager import UnknownFormat
from headrace.log.metadata import MetadataError

DEFAULT_ADDRESS = "localhost:9092"
DEFAULT_DATA = "./headrace-data"


def run(listen: str | None, data: str | None, assignments: list[str], config: Path | None) -> int:
    configure()
    stopping = threading.Event()
    try:
        settings = {**(read_properties(config) if config else {}), **parse_assignments(assignments)}
        host, port = parse_address(listen or first_listener(settings) or DEFAULT_ADDRESS)
        settings["listeners"] = f"PLAINTEXT://{host}:{port}"
        broker = Broker(
            data_dir=data or settings.get("log.dirs") or settings.get("log.dir") or DEFAULT_DATA,
            host=host,
            port=port,
            settings=settings,
            on_failure=lambda _: stopping.set(),
        )
        broker.start()
    except (OSError, ValueError, DirectoryLocked, UnknownFormat, MetadataError) as error:
        print(f"headrace serve: {error}", file=sys.stderr)
        return 1
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: stopping.set())
    print(f"listening on {broker.bootstrap_servers}", flush=True)
    stopping.wait()
    broker.stop()
    return 0 if broker.failure is None else 1
