"""Work that is too long for one turn of the event loop, cut into steps.

Theory of operation. Work is a generator: each `yield` is a place where the turn may end, and everything must be
consistent there, because other requests are handled before it goes on. The first step is taken at once, so that small
work is done when `run` returns; `BrokerCore.settle` takes one more step each time, of the works in turn. A step is
bounded by a count of operations, not by time: the same requests give the same steps. Work that has to wait for
something else, such as a worker, yields a `Later` of it and goes on when that is done, whether it failed or not.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from headrace.broker.later import Later

logger = logging.getLogger("headrace.broker")

Steps = Iterator[None]
WaitingSteps = Iterator[Later[None] | None]
Failed = Callable[[Exception], None]
T = TypeVar("T")
U = TypeVar("U")
_END = object()


class Slices:
    def __init__(self) -> None:
        self._waiting: deque[tuple[WaitingSteps, Failed | None]] = deque()

    def run(self, steps: WaitingSteps, failed: Failed | None = None) -> None:
        """Takes the first step now and the others later, one a turn. `failed` is told if one of them raises."""
        waits_for = _step(steps, failed)
        if isinstance(waits_for, Later):
            waits_for.then(
                lambda _: self._waiting.append((steps, failed)),
                lambda _: self._waiting.append((steps, failed)),
            )
        elif waits_for is None:
            self._waiting.append((steps, failed))

    def each(
        self,
        items: Sequence[T],
        function: Callable[[T], U],
        *,
        per_step: int,
        cost: Callable[[T], int] | None = None,
    ) -> Later[list[U]]:
        """What the function returns for each of the items, so many of them a turn; `cost`: as many as it counts for."""
        answer: Later[list[U]] = Later()
        if cost is None and len(items) <= per_step:
            answer.settle(lambda: [function(item) for item in items])
            return answer

        def steps() -> Steps:
            results: list[U] = []
            spent = 0
            for item in items:
                spent += 1 if cost is None else cost(item)
                if spent > per_step and results:
                    yield
                    spent = 1 if cost is None else cost(item)
                results.append(function(item))
            answer.resolve(results)

        self.run(steps(), answer.fail)
        return answer

    @property
    def is_pending(self) -> bool:
        return bool(self._waiting)

    def step(self) -> None:
        """One step of the work whose turn it is."""
        if self._waiting:
            self.run(*self._waiting.popleft())


def _step(steps: WaitingSteps, failed: Failed | None) -> object:
    """What the work waits for, None if only for its next turn; `_END` when there is no more to do."""
    try:
        return next(steps, _END)
    except Exception as error:  # it is one work's trouble; the turn belongs to others too
        if failed is not None:
            failed(error)
        else:
            logger.exception("a long operation failed and was not completed")
        return _END
