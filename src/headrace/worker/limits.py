"""What the workers of a group may do together: `limit=` runs at a time, `group_rate=` starts. Both rest on permits.

A permit of `limit` is one run at a time. A permit of `group_rate` is an equal part of the rate; see `permits.py`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from headrace.worker.permits import Permits
from headrace.worker.rate import RateBucket
from headrace.worker.slots import RunSlots
from headrace.worker.task import Task

RATE_PARTS = 12
"""So many workers can have a part of a rate, and it is divided evenly among 2, 3, 4 or 6."""


class GroupLimits:
    """Of one task in one worker. Without limits it does nothing."""

    def __init__(
        self,
        task: Task[Any, Any, Any],
        given: Mapping[str, Any],
        group_id: str,
        slots: RunSlots,
        *,
        changed: Callable[[], None],
        lost: Callable[[], None],
        now_ms: Callable[[], int],
    ) -> None:
        self._slots = slots
        self._wake = changed
        self._now_ms = now_ms
        self._permits: list[Permits] = []
        options, name = task.options, f"{group_id}.{task.topic}"
        if options.limit is not None:
            slots.set_capacity(0)
            self._permits.append(
                Permits(
                    given, f"{name}.limit", options.limit,
                    in_use=lambda: slots.taken, changed=self._set_capacity, lost=lost,
                )
            )  # fmt: skip
        if options.group_rate is not None:
            self._bucket = RateBucket(options.group_rate, share=0.0)
            slots.add(self._bucket)
            self._permits.append(
                Permits(
                    given, f"{name}.rate", RATE_PARTS,
                    in_use=lambda: 0, changed=self._set_share, lost=lambda: None,
                )
            )  # fmt: skip

    async def start(self) -> None:
        for permits in self._permits:
            await permits.start()

    def note_end(self) -> None:
        for permits in self._permits:
            permits.note_end()

    async def close(self) -> None:
        for permits in self._permits:
            await permits.close()

    def _set_capacity(self, permits: int) -> None:
        self._slots.set_capacity(permits)
        self._wake()

    def _set_share(self, permits: int) -> None:
        self._bucket.set_share(permits / RATE_PARTS, self._now_ms())
        self._wake()
