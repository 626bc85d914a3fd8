"""Work that comes round by itself: retention, compaction, old producer ids."""

from typing import TYPE_CHECKING

from headrace.broker.runner import Runner

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore


class Housekeeping:
    def __init__(self, core: "BrokerCore", runner: Runner) -> None:
        self._core = core
        self._runner = runner

    def stop(self) -> None:
        pass
