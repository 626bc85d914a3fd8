"""What a client reports, as it travels from its process to the driver."""

import json
import resource
import time
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class Figures:
    """`busy` is the share of one core the client used: near 1 means that it, not the broker, set the pace."""

    records: int
    seconds: float
    busy: float
    extra: dict[str, float] = field(default_factory=dict)

    def print(self) -> None:
        print(json.dumps(asdict(self)), flush=True)

    @staticmethod
    def parse(line: str) -> "Figures":
        return Figures(**json.loads(line))


class Stopwatch:
    """Wall clock and this process' processor time, from its making to `figures`."""

    def __init__(self) -> None:
        self._cpu_s = _cpu_s()
        self.started = time.perf_counter()

    def figures(self, records: int, **extra: float) -> Figures:
        seconds = time.perf_counter() - self.started
        return Figures(records, seconds, (_cpu_s() - self._cpu_s) / seconds, extra)


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
