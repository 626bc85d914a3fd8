"""The timers of groups: each group has at most one, at its earliest deadline.

Heartbeats only move deadlines back, so they leave the timer alone: it fires, finds nothing due, and is armed anew.
After a pause thousands of sessions of one group may have ended at once: some are dealt with in each turn of the loop.
"""

from typing import TYPE_CHECKING

from headrace.broker.groups.registry import Group
from headrace.broker.slices import Steps
from headrace.broker.timers import Timer

if TYPE_CHECKING:
    from headrace.broker.groups.coordinator import GroupCoordinator

RETRY_MS = 1000
"""When the journal refused what time demanded: how long until it is tried again."""
EXPIRATIONS_PER_STEP = 10
"""Members whose sessions have ended, of one group, that are dealt with in one turn of the loop."""


class GroupTimers:
    def __init__(self, coordinator: "GroupCoordinator") -> None:
        self._coordinator = coordinator
        self._core = coordinator.core
        self._timers: dict[str, Timer] = {}
        self._expiring: set[str] = set()
        """Groups that deal with what is due, over several turns: they arm their timers when that is done."""

    def watch(self, group: Group) -> None:
        """Arms the group's timer, unless it already fires in time."""
        if group.group_id in self._expiring:
            return
        deadline_ms = group.deadline_ms()
        armed = self._timers.get(group.group_id)
        if armed is not None:
            if deadline_ms is not None and armed.deadline_ms <= deadline_ms:
                return
            armed.cancel()
            del self._timers[group.group_id]
        if deadline_ms is not None:
            self._arm(group.group_id, deadline_ms)

    def _arm(self, group_id: str, deadline_ms: int) -> None:
        self._timers[group_id] = self._core.timers.at(deadline_ms, lambda: self._expire(group_id))

    def _expire(self, group_id: str) -> None:
        del self._timers[group_id]
        self._core.slices.run(self._expirations(group_id))

    def _expirations(self, group_id: str) -> Steps:
        self._expiring.add(group_id)
        retry_ms: int | None = None
        expired = 0
        try:
            while retry_ms is None and (group := self._due(group_id)) is not None:
                if expired and expired % EXPIRATIONS_PER_STEP == 0:
                    yield
                    if self._due(group_id) is not group:
                        continue
                expired += 1
                now = self._coordinator.now()
                write = group.expire(now)
                if write is not None and not self._coordinator.carry_out(group, write):
                    retry_ms = now.ms + RETRY_MS
        finally:
            self._expiring.discard(group_id)
        if retry_ms is not None:
            self._arm(group_id, retry_ms)
            return
        left = self._coordinator.registry.get(group_id)
        if left is not None:
            self.watch(left)

    def _due(self, group_id: str) -> Group | None:
        """The group, if something in it is due."""
        group = self._coordinator.registry.get(group_id)
        deadline_ms = group.deadline_ms() if group is not None else None
        return group if deadline_ms is not None and deadline_ms <= self._core.clock.monotonic_ms() else None
