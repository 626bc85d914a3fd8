"""An answer that comes later: a parked fetch, a join that waits for the others, a produce that waits for the disk.

Handlers return either their response or a `Later` of it. Unlike a future it needs no event loop, so handlers and
coordinators can be tested without one; whoever resolves it runs the callbacks at once, in the order they were added.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class Later(Generic[T]):
    __slots__ = ("_callbacks", "_value", "is_done", "on_abandon")

    def __init__(self) -> None:
        self.is_done = False
        self._callbacks: list[Callable[[T], None]] = []
        self.on_abandon: Callable[[], None] | None = None
        """Called when the client has gone and nobody waits any more: take the request out of where it is parked."""

    def resolve(self, value: T) -> None:
        """Answers; a second answer is ignored (a timer and a wake-up may both come)."""
        if self.is_done:
            return
        self.is_done = True
        self._value = value
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(value)

    def then(self, callback: Callable[[T], None]) -> None:
        if self.is_done:
            callback(self._value)
        else:
            self._callbacks.append(callback)

    def map(self, function: Callable[[T], U]) -> "Later[U]":
        result: Later[U] = Later()
        result.on_abandon = self.abandon
        self.then(lambda value: result.resolve(function(value)))
        return result

    def abandon(self) -> None:
        if not self.is_done and self.on_abandon is not None:
            self.on_abandon()

    @property
    def value(self) -> T:
        assert self.is_done, "not answered yet"
        return self._value


def resolved(value: T) -> Later[T]:
    later: Later[T] = Later()
    later.resolve(value)
    return later


def when_all(laters: Sequence[Later[T]]) -> Later[list[T]]:
    """Resolves with all the values, in order, once the last of them is there."""
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
        later.then(count_down)
    return result
