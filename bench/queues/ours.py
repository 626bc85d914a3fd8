"""Our broker as the server of a queue."""

from itertools import count
from pathlib import Path

from bench.brokers import Headrace, Policy


class HeadraceServer:
    """`headrace serve`, with a topic of its own for each run: nothing is left of the last."""

    def __init__(self, folder: Path, *, policy: Policy, bytecode: Path, prefix: str = "") -> None:
        self._broker = Headrace(folder, bytecode=bytecode)
        self._running = self._broker.start(policy)
        self._runs, self._prefix = count(1), prefix
        self.empty()

    @property
    def pid(self) -> int:
        return self._running.pid

    def empty(self) -> None:
        self.address = f"{self._running.bootstrap_servers}/{self._prefix}jobs-{next(self._runs)}"

    def stop(self) -> None:
        self._broker.stop()
