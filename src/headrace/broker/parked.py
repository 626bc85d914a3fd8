"""Requests that wait for records. Each waits on partitions; an append wakes those that wait on that partition.

Waking is put off until the request that appended has been dealt with (`run_woken`), so that a produce is
answered before the fetches it completes are read, and many appends wake a fetch once.
"""

import logging
from collections.abc import Callable, Hashable, Iterable

logger = logging.getLogger("headrace.broker")


class ParkedRequest:
    __slots__ = ("attempt", "keys")

    def __init__(self, keys: tuple[Hashable, ...], attempt: Callable[[], None]) -> None:
        self.keys = keys
        self.attempt: Callable[[], None] | None = attempt
        """None once it was removed. It refers back to this request as a rule; left here, each request that ever
        waited would be garbage that only a collection finds, and a collection stops everybody."""


class Parked:
    def __init__(self) -> None:
        self._waiting: dict[Hashable, dict[ParkedRequest, None]] = {}
        self._woken: dict[Hashable, None] = {}

    def park(self, keys: Iterable[Hashable], attempt: Callable[[], None]) -> ParkedRequest:
        """`attempt` is called each time one of `keys` was touched, until the request is removed."""
        request = ParkedRequest(tuple(keys), attempt)
        for key in request.keys:
            self._waiting.setdefault(key, {})[request] = None
        return request

    def remove(self, request: ParkedRequest) -> None:
        request.attempt = None
        for key in request.keys:
            waiting = self._waiting.get(key)
            if waiting is not None:
                waiting.pop(request, None)
                if not waiting:
                    del self._waiting[key]

    def touch(self, key: Hashable) -> None:
        if key in self._waiting:
            self._woken[key] = None

    def run_woken(self) -> None:
        while self._woken:
            woken, self._woken = self._woken, {}
            requests: dict[ParkedRequest, None] = {}
            for key in woken:
                requests.update(self._waiting.get(key, {}))
            for request in requests:
                if request.attempt is None:  # removed by one that was woken before it
                    continue
                try:
                    request.attempt()
                except Exception:  # it is one request's trouble; the others were woken too
                    logger.exception("a parked request failed")

    def __len__(self) -> int:
        return len({request for waiting in self._waiting.values() for request in waiting})
