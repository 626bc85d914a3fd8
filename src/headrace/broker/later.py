"""An answer that comes later: a parked fetch, a join that waits for the others, a produce that waits for the disk.

Handlers return either their response or a `Later` of it. Unlike a future it needs no event loop, so handlers and
coordinators can be tested without one; whoever resolves it runs the callbacks at once, in the order they were added.

One sync answers many requests, so what goes wrong with one must not reach the others: an error in a callback is logged
and ends there, an error in `map` fails the mapped Later, and whoever waits for that one is told.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

logger = logging.getLogger("headrace.broker")

T = TypeVar("T")
U = TypeVar("U")


class Later(Generic[T]):
    __slots__ = (
        "_callbacks",
        "_failed",
        "_failure",
        "_value",
        "is_done",
        "is_exclusive",
        "on_abandon",
        "on_shared",
    )

    def __init__(self) -> None:
        self.is_done = False
        self.is_exclusive = False
        """The connection's next request may not start before this one is answered, not even a produce."""
        self.on_shared: Callable[[], None] | None = None
        """Called when it is not exclusive any more."""
        self._failure: Exception | None = None
        self._callbacks: list[Callable[[T], None]] = []
        self._failed: list[Callable[[Exception], None]] = []
        self.on_abandon: Callable[[], None] | None = None
        """Called when the client has gone and nobody waits any more: take the request out of where it is parked."""

    def resolve(self, value: T) -> None:
        """Answers; a second answer is ignored (a timer and a wake-up may both come)."""
        if self.is_done:
            return
        self.is_done = True
        self._value = value
        callbacks, self._callbacks, self._failed = self._callbacks, [], []
        for callback in callbacks:
            _call(callback, value)

    def fail(self, error: Exception) -> None:
        """There will be no answer, for this reason."""
        if self.is_done:
            return
        self.is_done = True
        self._failure = error
        failed, self._callbacks, self._failed = self._failed, [], []
        for callback in failed:
            _call(callback, error)

    def settle(self, function: Callable[[], T]) -> None:
        """Answers with what the function returns, or fails with what it raises."""
        try:
            value = function()
        except Exception as error:
            self.fail(error)
        else:
            self.resolve(value)

    def then(self, callback: Callable[[T], None], failed: Callable[[Exception], None] | None = None) -> None:
        if not self.is_done:
            self._callbacks.append(callback)
            if failed is not None:
                self._failed.append(failed)
        elif self._failure is None:
            callback(self._value)
        elif failed is not None:
            failed(self._failure)

    def map(self, function: Callable[[T], U]) -> "Later[U]":
        result: Later[U] = Later()
        result.on_abandon = self.abandon
        self.then(lambda value: result.settle(lambda: function(value)), result.fail)
        return result

    def share(self) -> None:
        """Lets the connection's next produce requests start although this one is not answered."""
        self.is_exclusive = False
        if self.on_shared is not None:
            self.on_shared()

    def abandon(self) -> None:
        if not self.is_done and self.on_abandon is not None:
            self.on_abandon()

    def now(self) -> "T | Later[T]":
        """The answer if it is there already, raising what it failed with; else this Later of it."""
        return self.value if self.is_done else self

    @property
    def value(self) -> T:
        """The answer; raises what it failed with."""
        assert self.is_done, "not answered yet"
        if self._failure is not None:
            raise self._failure
        return self._value


def _call(callback: Callable[[U], None], value: U) -> None:
    try:
        callback(value)
    except Exception:
        logger.exception("a callback failed")


def resolved(value: T) -> Later[T]:
    later: Later[T] = Later()
    later.resolve(value)
    return later


def when_all(laters: Sequence[Later[T]]) -> Later[list[T]]:
    """Resolves with all the values, in order, once the last of them is there; fails with the first that fails."""
    result: Later[list[T]] = Later()
    missing = len(laters)
    if not missing:
        result.resolve([])

    def count_down(_: T) -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            result.resolve([later.value for later in laters])

    for later in laters:
        later.then(count_down, result.fail)
    return result
