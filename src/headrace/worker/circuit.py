"""A circuit breaker for one task: when record after record fails, the worker stops trying all of them.

Closed, everything runs. It opens when `failures` different records have failed and none has succeeded in between: a
service is away, and every further run only costs attempts. Open, one record at a time is tried (a probe), first after
`first` seconds, then after twice as long each time, up to `most`. The first success closes it. Retries of a single
record never open it, nor do records whose function says when to try them again (`Retry(after=...)`): they tell nothing
about the service, so a probe that ends like that is repeated after the same time. The scheduler prefers new records for
probes: with nothing but records that always fail, it would never close. Pure: no clock and no threads; the scheduler
tells what happened and when.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass

from headrace.worker.outcomes import TaskOutcome, TaskResult


@dataclass(frozen=True, slots=True)
class Breaker:
    """When a task pauses: after `failures` records in a row that failed. It then probes after `first` to `most` s."""

    failures: int = 20
    first: float = 1.0
    most: float = 30.0

    def __post_init__(self) -> None:
        _require(self.failures >= 1, "failures", self.failures, ">= 1")
        _require(math.isfinite(self.first) and self.first > 0, "first", self.first, "finite and > 0 seconds")
        _require(
            math.isfinite(self.most) and self.most >= self.first,
            "most", self.most, f"finite and >= first ({self.first})",
        )  # fmt: skip


class Circuit:
    def __init__(self, breaker: Breaker | None) -> None:
        self._breaker = breaker
        self._failed: set[Hashable] = set()
        """Records that failed since the last success; never more than the breaker's `failures`."""
        self._probe: object | None = None
        self._is_probe_due = False
        self._wait_ms = 0
        self.is_open = False
        self.opened = 0
        """How often it has opened."""
        self.probe_ms: int | None = None
        """When the next probe may start, while it is open and none is under way or overdue."""

    @property
    def wait_s(self) -> float:
        """How long it waits before the next probe."""
        return self._wait_ms / 1000

    @property
    def may_start(self) -> bool:
        return not self.is_open or self._is_probe_due

    def tick(self, now_ms: int) -> None:
        if self.probe_ms is not None and now_ms >= self.probe_ms:
            self.probe_ms = None
            self._is_probe_due = True

    def started(self, run: object) -> None:
        if self.is_open:
            self._probe, self._is_probe_due = run, False

    def ended(self, run: object, record: Hashable, outcome: TaskOutcome, now_ms: int) -> None:
        """A run has ended. `record` is the same for every run of a record."""
        if self._breaker is None:
            return
        is_probe = run is self._probe
        if outcome.result is TaskResult.DONE:
            self._close()
        elif self.is_open and is_probe:
            self._probe = None
            longer = min(self._wait_ms * 2, round(self._breaker.most * 1000))
            self._probe_after(longer if outcome.is_failure else self._wait_ms, now_ms)
        elif not self.is_open and outcome.is_failure:
            self._failed.add(record)
            if len(self._failed) >= self._breaker.failures:
                self._open(now_ms)

    def _open(self, now_ms: int) -> None:
        assert self._breaker is not None
        self._failed.clear()
        self.is_open = True
        self.opened += 1
        self._probe_after(round(self._breaker.first * 1000), now_ms)

    def _probe_after(self, wait_ms: int, now_ms: int) -> None:
        self._wait_ms = wait_ms
        self.probe_ms = now_ms + wait_ms
        self._is_probe_due = False

    def _close(self) -> None:
        self._failed.clear()
        self.is_open = self._is_probe_due = False
        self._probe = self.probe_ms = None


def _require(holds: bool, name: str, value: object, wanted: str) -> None:
    if not holds:
        raise ValueError(f"Breaker: {name} must be {wanted}, got {value}")
