"""The response to a request that failed as a whole, built from the schema of the response.

A response with an error code of its own carries the error there. Otherwise everything the request names (topics and
their partitions, groups, resources) comes back with the error code. The tables hold what the schemas do not say.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headrace.wire.apis import response_class
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import F, Message

PARTITION_NAMES = ("partition_index", "partition", "partition_id", "index")
"""Kafka's names for the number of a partition; request and response of one API may use different ones."""
IDENTITIES = frozenset(PARTITION_NAMES) | {
    "group_id", "key", "name", "resource_name", "resource_type", "topic", "topic_id", "topic_name",
    "transactional_id",
}  # fmt: skip
"""Fields that say which topic, partition, group or resource an item is about. All others keep their defaults."""
VALUES: dict[str, dict[str, Any]] = {
    "DeleteRecordsResponse": {"low_watermark": -1},
    "DescribeClientQuotasResponse": {"entries": None},
    "FetchResponse": {"high_watermark": -1},
    "FindCoordinatorResponse": {"node_id": -1, "port": -1},
    "InitProducerIdResponse": {"producer_epoch": -1},
    "OffsetFetchResponse": {"committed_offset": -1},
    "ProduceResponse": {"base_offset": -1},
}
"""What Kafka puts into the other fields of an error, where that is not the default of the schema."""
FENCED_SINCE = {"AddOffsetsToTxnResponse": 2, "EndTxnResponse": 2, "InitProducerIdResponse": 4}
"""The version that introduced PRODUCER_FENCED. Older clients know INVALID_PRODUCER_EPOCH."""
WITH_TEXT = frozenset(
    {
        "AlterShareGroupOffsetsResponse",
        "DeleteShareGroupOffsetsResponse",
        "DeleteShareGroupStateResponse",
        "InitializeShareGroupStateResponse",
        "ReadShareGroupStateResponse",
        "ReadShareGroupStateSummaryResponse",
        "WriteShareGroupStateResponse",
    }
)
"""An error without a message of its own has Kafka's general message for its code here; elsewhere it has none."""


def error_response(request: Message, code: ErrorCode, message: str | None, api_version: int) -> Message:
    response = response_class(request.API_KEY)
    name = response.__name__
    if code is ErrorCode.PRODUCER_FENCED and api_version < FENCED_SINCE.get(name, 0):
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    text = KafkaError(code, message).text if name in WITH_TEXT else message
    return _Builder(api_version, _fixed(name, code, text)).build(response, request)


def error_items(
    api_key: int,
    parent: type[Message],
    field: str,
    asked: Sequence[Any],
    code: ErrorCode,
    message: str | None,
    api_version: int,
) -> list[Message]:
    """What goes into one list of a response, or of a part of it, about items of the request that are refused."""
    (struct,) = (each.struct for each in parent.SCHEMA if each.name == field and each.struct is not None)
    fixed = _fixed(response_class(api_key).__name__, code, message)
    return [_Builder(api_version, fixed).build(struct, item) for item in asked]


def _fixed(response: str, code: ErrorCode, message: str | None) -> dict[str, Any]:
    return {"error_code": code, "error_message": message, **VALUES.get(response, {})}


@dataclass(frozen=True, slots=True)
class _Builder:
    version: int
    fixed: dict[str, Any]
    """The values of fields by their names, wherever in the response they are."""

    def build(self, message: type[Message], asked: Any) -> Message:
        """A part of the response, about a part of the request: a struct, or the bare name or number of an item."""
        plan = _plan(message, type(asked), self.version)
        fixed = self.fixed
        values = {name: fixed[name] for name in plan.may_be_fixed if name in fixed}
        if plan.bare:
            values[plan.bare] = asked
        for name, source in plan.identities:
            values[name] = getattr(asked, source)
        if "error_code" not in values:
            items = getattr(asked, plan.items) or () if plan.items else ()
            for name, struct in plan.lists:
                values[name] = [self.build(struct, item) for item in items]
        return message(**values)


class _Plan(NamedTuple):
    """What of one kind of item goes where in one kind of answer."""

    may_be_fixed: list[str]
    bare: str
    """The field for an item that is only a name or number."""
    identities: list[tuple[str, str]]
    """Fields of the answer, and those of the item that they come from."""
    lists: list[tuple[str, type[Message]]]
    """The lists of things that the request has named."""
    items: str
    """The first list of a request, or of one of its items, is what it is about; null means all, and names none."""


_plans: dict[tuple[type[Message], type, int], _Plan] = {}


def _plan(message: type[Message], asked: type, version: int) -> _Plan:
    found = _plans.get((message, asked, version))
    if found is None:
        found = _plans[message, asked, version] = _make_plan(message, asked, version)
    return found


def _make_plan(message: type[Message], asked: type, version: int) -> _Plan:
    fields = _fields(message, version)
    names = [field.name for field in fields]
    identities = [name for name in names if name in IDENTITIES]
    lists = [(field.name, field.struct) for field in fields if field.struct and field.kind.startswith("[]")]
    lists = [(name, struct) for name, struct in lists if _is_about_identity(struct)]
    if not issubclass(asked, Message):
        return _Plan(names, identities[0], [], [], "")
    items = (field.name for field in _fields(asked, version) if field.kind.startswith("[]"))
    return _Plan(names, "", _sources(asked, identities), lists, next(items, ""))


def _fields(message: type[Message], version: int) -> list[F]:
    return [field for field in message.SCHEMA if field.versions[0] <= version <= field.versions[1]]


def _is_about_identity(struct: type[Message]) -> bool:
    return any(field.name in IDENTITIES for field in struct.SCHEMA)


def _sources(asked: type[Message], names: Sequence[str]) -> list[tuple[str, str]]:
    there = {field.name for field in asked.SCHEMA}
    found = []
    for name in names:
        same = PARTITION_NAMES if name in PARTITION_NAMES else (name,)
        sources = [each for each in same if each in there]
        if sources:
            found.append((name, sources[0]))
    return found
