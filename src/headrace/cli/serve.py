"""`headrace serve`: a broker as a process of its own."""

import signal
import sys
import threading
from pathlib import Path
from typing import Any

from headrace.broker.embedded import Broker
from headrace.broker.logs import configure
from headrace.broker.settings import SettingError, read_properties
from headrace.log.errors import LogError


def run(listen: str, data: str, assignments: list[str], config: Path | None) -> int:
    configure()
    stopping = threading.Event()
    try:
        host, port = _address(listen)
        broker = Broker(
            data_dir=data,
            host=host,
            port=port,
            settings=_settings(assignments, config),
            on_failure=lambda _: stopping.set(),
        )
        broker.start()
    except (SettingError, LogError, OSError, ValueError) as error:
        print(f"headrace serve: {error}", file=sys.stderr)
        return 1
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: stopping.set())
    print(f"listening on {broker.bootstrap_servers}", flush=True)
    stopping.wait()
    broker.stop()
    return 0 if broker.failure is None else 1


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"--listen {text!r} is not HOST:PORT, for example localhost:9092")
    return host.strip("[]"), int(port)


def _settings(assignments: list[str], config: Path | None) -> dict[str, Any]:
    settings: dict[str, Any] = dict(read_properties(config)) if config is not None else {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise ValueError(f"--set {assignment!r} is not KEY=VALUE, for example num.partitions=3")
        settings[name.strip()] = value.strip()
    return settings
