"""A request that asks about many things becomes many small requests, each in a turn of the loop of its own.

Theory of operation. A handler that answers what the request names one by one, and changes nothing, says in `CUTS` which
list that is. Each piece of the list is a request: it is authorized, handled, and its response is written to bytes. The
pieces of the response are put together. So the response is the one that many small requests would get, and no turn does
more than a small request needs. An item may be cut, too, if the list inside it is long.

How many items the next piece has follows from the bytes that the last one has answered: the time goes with them. Of
large answers one at a time is put together, so that many clients that ask for one hold no more memory than one does.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.broker.later import Later
from headrace.broker.slices import WaitingSteps
from headrace.wire.apis import response_class
from headrace.wire.codec import EncodedItems, encode_items
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import Message, replaced

if TYPE_CHECKING:
    from headrace.broker.call import Call
    from headrace.broker.core import BrokerCore

PIECE = 50
"""Elements of the first piece. A request that has no more is handled as it came."""
PIECE_MAX = 1_000
SMALL_ANSWER, LARGE_ANSWER = 16 << 10, 64 << 10
"""Bytes of a piece's answer up to which the next piece may be larger, and from which on it is smaller."""
ANSWER_BYTES_MAX = 100 << 20
"""The largest response that is put together from pieces: as much as a request may have."""
LARGE_BYTES = 4 << 20
"""An answer with more waits until no other of its size is under way."""
Answer = Message | Later[Message] | None
_LISTS: dict[type[Message], list[tuple[str, bool]]] = {}
"""The lists of a struct, and whether their items are structs."""
Handle = Callable[[Message], Answer]


@dataclass(frozen=True, slots=True)
class CutList:
    """The list of a request that may be cut, and the list of the response that answers it."""

    items: str
    answers: str
    inside: str = ""
    """A list inside the items that may be cut, too."""
    inside_answers: str = ""
    """The list that answers it."""
    piece_max: int = PIECE_MAX
    names: tuple[str, ...] = ()
    """Fields that name an item, if one that is named twice is answered once."""


Cuts = Mapping[int, CutList]
"""By the first version of the request that it is for."""


def cut_of(cuts: Cuts, request: Any, version: int) -> CutList | None:
    """How to cut a request; None if it is small enough to be handled as it came."""
    found = None
    for since, cut in cuts.items():
        if version >= since:
            found = cut
    if found is None:
        return None
    left = PIECE
    for item in getattr(request, found.items) or ():
        left -= _weight(item)
        if left < 0:
            return found
    return None


class RequestPiece(NamedTuple):
    items: list[Any]
    is_part: bool = False
    """It is a part of one item, not the first one."""


class LargeAnswers:
    """Whose turn it is to have a large answer put together: one after the other."""

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: deque[Later[None]] = deque()

    def enter(self) -> Later[None]:
        """Resolves when it is one's turn. Call `leave` then, whatever happens."""
        turn: Later[None] = Later()
        if self._is_taken:
            self._waiting.append(turn)
        else:
            self._is_taken = True
            turn.resolve(None)
        return turn

    def leave(self) -> None:
        if self._waiting:
            self._waiting.popleft().resolve(None)
        else:
            self._is_taken = False


class Pieces:
    """One request on its way to its response."""

    def __init__(
        self, core: "BrokerCore", request: Message, call: "Call", cut: CutList, handle: Handle
    ) -> None:
        self._core = core
        self._request = request
        self._call = call
        self._cut = cut
        self._handle = handle
        self._size = min(PIECE, cut.piece_max)
        self._pieces = self._cut_up()
        self._response: Any = None
        self._answers = EncodedItems()
        self._open: Any = None
        """The answer to an item that was cut, as far as it has come."""
        self._open_bytes = 0
        self.later: Later[Message] = Later()
        self.later.on_abandon = self._abandon
        self._is_abandoned = False
        self._has_turn = False

    def run(self) -> Later[Message]:
        self._core.slices.run(self._steps(), self.later.fail)
        return self.later

    def _abandon(self) -> None:
        self._is_abandoned = True

    def _steps(self) -> WaitingSteps:
        try:
            for piece in self._pieces:
                if self._is_abandoned:
                    return
                answer = self._handle(replaced(self._request, self._cut.items, piece.items))
                assert isinstance(answer, Message), "what is cut is answered at once"
                if not self._take(piece, answer):
                    return
                yield self._turn()
            if not self._is_abandoned:
                self._finish()
        finally:
            if self._has_turn:
                self._core.large_answers.leave()

    def _turn(self) -> Later[None] | None:
        """What a large answer has to wait for before it gets larger."""
        if self._has_turn or self._written() <= LARGE_BYTES:
            return None
        self._has_turn = True
        turn = self._core.large_answers.enter()
        return None if turn.is_done else turn

    def _take(self, piece: RequestPiece, answer: Any) -> bool:
        """Writes the answer to a piece; False if there is no more to do."""
        code = getattr(answer, "error_code", 0)
        if code:  # of the whole request: the same for every piece
            text = getattr(answer, "error_message", None)
            self.later.resolve(
                self._core.failed(self._request, self._call, KafkaError(ErrorCode(code), text))
            )
            return False
        self._core.request_metrics.count_errors(self._request.API_KEY, answer)
        before = self._written()
        items = getattr(answer, self._cut.answers)
        if not piece.is_part:
            self._close()
        if self._cut.inside and len(items) == 1:
            self._extend(items[0])
        else:
            self._close()
            self._write((self._cut.answers,), items, self._answers)
        if self._response is None:
            self._response = answer
        written = self._written()
        if written > ANSWER_BYTES_MAX:
            self.later.fail(
                KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"The response would have more than {ANSWER_BYTES_MAX} bytes; send several smaller requests.",
                )
            )
            return False
        self._resize(written - before)
        return True

    def _resize(self, answered: int) -> None:
        if answered <= SMALL_ANSWER:
            self._size = min(2 * self._size, self._cut.piece_max)
        elif answered >= LARGE_ANSWER:
            self._size = max(1, self._size // 2)

    def _extend(self, item: Any) -> None:
        """The answer to one item, or to a part of one. An error of the item stands alone."""
        inside = self._cut.inside_answers
        parts = getattr(item, inside)
        if self._open is None or (_error(item) and not _error(self._open)):
            self._open = item
            setattr(item, inside, EncodedItems())
        written = getattr(self._open, inside)
        if not _error(self._open):
            self._write((self._cut.answers, inside), parts, written)
        self._open_bytes = len(written.data)

    def _close(self) -> None:
        if self._open is not None:
            self._write((self._cut.answers,), [self._open], self._answers)
            self._open, self._open_bytes = None, 0

    def _write(self, path: tuple[str, ...], items: Sequence[Message], out: EncodedItems) -> None:
        encode_items(response_class(self._request.API_KEY), path, self._call.api_version, items, out)

    def _written(self) -> int:
        return len(self._answers.data) + self._open_bytes

    def _finish(self) -> None:
        self._close()
        setattr(self._response, self._cut.answers, self._answers)
        self.later.resolve(self._response)

    def _cut_up(self) -> Iterator[RequestPiece]:
        taken: list[Any] = []
        left = self._size
        for item in self._items():
            weight = _weight(item)
            if taken and weight > left:
                yield RequestPiece(taken)
                taken, left = [], self._size
            if weight > self._size and self._cut.inside and getattr(item, self._cut.inside):
                yield from self._cut_item(item)
                left = self._size
                continue
            taken.append(item)
            left -= weight
        if taken:
            yield RequestPiece(taken)

    def _cut_item(self, item: Any) -> Iterator[RequestPiece]:
        inside, is_part = self._cut.inside, False
        taken: list[Any] = []
        left = self._size
        for part in getattr(item, inside):
            weight = _weight(part)
            if taken and weight > left:
                yield RequestPiece([replaced(item, inside, taken)], is_part)
                taken, left, is_part = [], self._size, True
            taken.append(part)
            left -= weight
        yield RequestPiece([replaced(item, inside, taken)], is_part)

    def _items(self) -> Sequence[Any]:
        items: Sequence[Any] = getattr(self._request, self._cut.items)
        names = self._cut.names
        return (
            [*{tuple(getattr(item, name) for name in names): item for item in items}.values()]
            if names
            else items
        )


def _error(item: Any) -> int:
    return getattr(item, "error_code", 0)


def _weight(item: Any) -> int:
    """How many elements an item of a list stands for: itself, and those of the lists inside it."""
    weight = 1
    if not isinstance(item, Message):
        return weight
    for name, is_struct in _lists(type(item)):
        inside = getattr(item, name) or ()
        weight += sum(map(_weight, inside)) if is_struct else len(inside)
    return weight


def _lists(message: type[Message]) -> list[tuple[str, bool]]:
    found = _LISTS.get(message)
    if found is None:
        lists = (field for field in message.SCHEMA if field.kind.startswith("[]"))
        found = _LISTS[message] = [(field.name, field.struct is not None) for field in lists]
    return found
