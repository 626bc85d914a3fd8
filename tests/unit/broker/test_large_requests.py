"""The largest requests of every API: no turn of the loop does more for one of them than a bound says.

Each list of each request is filled in turn with the smallest elements there are. What a turn costs is counted in
operations for two sizes, and extrapolated to the number of elements that a request of this API may have.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from headrace.broker.call import Call, CloseConnection
from headrace.broker.core import BrokerCore
from headrace.broker.elements import SETTING, elements_max, takes_many
from headrace.broker.handlers import SERVED, handler_of, served_versions
from headrace.broker.later import Later
from headrace.broker.pieces import CutList
from headrace.broker.settings import Settings
from headrace.broker.settings.access_table import STANDARD_AUTHORIZER
from headrace.log.memory_disk import MemoryDisk
from headrace.wire.apis import NAMES, request_class
from headrace.wire.codec import encode, read_message
from headrace.wire.message import F, Message
from tests.property.requests import AtOnce, StillClock
from tests.unit.work import operations

OPERATIONS_MAX = 50_000_000
"""Of one turn: less than half a second."""
MORE_THAN_LINEAR = 2.6
"""How many times as much work a request of twice the size may be."""
NOT_WORTH_COUNTING = 20_000
TOPIC, GROUP = "orders", "g"
NUMBERS = {"resource_type": 2, "operation": 3, "resource_pattern_type": 3, "permission_type": 3, "acks": 1}
DENIED = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:admin"}
"""The client may do nothing."""


@dataclass(frozen=True)
class Filled:
    """One list of one request: the names of the lists that lead to it."""

    api_key: int
    version: int
    path: tuple[str, ...]

    def __str__(self) -> str:
        return f"{NAMES[self.api_key]} v{self.version} {'.'.join(self.path)}"

    def request(self, count: int, *, known: bool) -> bytes:
        built = _build(request_class(self.api_key), self.version, self.path, count, 0, known=known)
        return encode(built, self.version)


def _build(
    message: type[Message], version: int, path: tuple[str, ...], count: int, number: int, *, known: bool
) -> Message:
    values: dict[str, Any] = {}
    for field in message.SCHEMA:
        if not field.versions[0] <= version <= field.versions[1]:
            continue
        element = field.kind.removeprefix("[]")
        rest = path[1:] if path and field.name == path[0] else None
        if element == field.kind:
            if field.struct is None:
                values[field.name] = _value(field, element, number, known=known)
            continue
        times = 0 if rest is None else count if not rest else 1
        values[field.name] = [
            _build(field.struct, version, rest or (), count, each, known=known)
            if field.struct is not None
            else _value(field, element, each, known=known)
            for each in range(times)
        ]
    return message(**values)


def _value(field: F, kind: str, number: int, *, known: bool) -> Any:
    if kind == "string":
        is_topic = "topic" in field.name or field.name in ("name", "resource_name")
        return (TOPIC if is_topic else GROUP) if known else f"x{number}"
    if kind == "uuid":
        return bytes(16) if known else (number + 1).to_bytes(16, "big")
    if kind in ("bytes", "records"):
        return b""
    if kind == "bool":
        return False
    if kind == "float64":
        return 0.0
    return NUMBERS.get(field.name, number % 100 if kind == "int8" else number % 30_000)


def _lists(message: type[Message], version: int, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for field in message.SCHEMA:
        if field.versions[0] <= version <= field.versions[1] and field.kind.startswith("[]"):
            yield (*before, field.name)
            if field.struct is not None:
                yield from _lists(field.struct, version, (*before, field.name))


def _every_list() -> Iterator[Filled]:
    for api_key in SERVED:
        versions = served_versions(api_key)
        assert versions is not None
        found: dict[tuple[str, ...], Filled] = {}
        for version in versions:
            found |= {
                path: Filled(api_key, version, path) for path in _lists(request_class(api_key), version)
            }
        yield from found.values()


def turns(filled: Filled, count: int, settings: dict[str, str], *, known: bool) -> list[int]:
    """The operations of each turn, from the bytes of the request to those of the response."""
    core = BrokerCore(
        Settings(settings),
        disk=MemoryDisk(),
        metadata_path=None,
        clock=StillClock(),
        runner=AtOnce(),
        on_failure=lambda error: pytest.fail(str(error)),
    )
    core.topics.create(TOPIC, partitions=3, configs={})
    version, frame = filled.version, filled.request(count, known=known)
    most = elements_max(Settings({}).get_int(SETTING), filled.api_key)
    answers: list[Any] = []

    def first() -> None:
        request, _ = read_message(request_class(filled.api_key), version, frame, elements_max=most)
        answers.append(core.handle(request, Call(api_version=version)))

    try:
        counts = [operations(first)]
        (answer,) = answers
        while isinstance(answer, Later) and not answer.is_done and core.is_due():
            counts.append(operations(core.settle))
        response = answer.value if isinstance(answer, Later) and answer.is_done else answer
        if isinstance(response, Message):
            counts.append(operations(lambda: encode(response, version)))
    except CloseConnection:
        return [0]
    finally:
        core.close()
    return counts


@pytest.mark.parametrize("filled", [*_every_list()], ids=str)
@pytest.mark.parametrize(
    ("settings", "known"), [({}, False), ({}, True), (DENIED, False)], ids=["unknown", "known", "denied"]
)
def test_no_turn_does_more_than_its_share_of_the_largest_request(
    filled: Filled, settings: dict[str, str], known: bool
) -> None:
    most = elements_max(Settings({}).get_int(SETTING), filled.api_key)
    count = _few(filled)
    turns(filled, 2, settings, known=known)  # what is compiled or imported the first time
    few = turns(filled, count, settings, known=known)
    many = turns(filled, 2 * count, settings, known=known)
    of_one_more = (max(many) - max(few)) / count
    assert max(few) + of_one_more * (most - count) < OPERATIONS_MAX, f"{of_one_more:.0f} for each element"
    assert sum(many) < MORE_THAN_LINEAR * sum(few) + NOT_WORTH_COUNTING


def _few(filled: Filled) -> int:
    """So many elements that twice as many make more pieces or steps, and not larger ones."""
    if not takes_many(filled.api_key):
        return 100
    cuts = getattr(handler_of(filled.api_key), "CUTS", {0: CutList("", "")})
    return max(cut.piece_max for cut in cuts.values()) * 3 // 2
