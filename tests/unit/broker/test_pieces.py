"""Requests about many things, handled in pieces: the response is the one that one piece would get."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from headrace.broker import pieces
from headrace.broker.call import Call
from headrace.broker.core import BrokerCore
from headrace.broker.handlers import SERVED, describe_groups, handler_of
from headrace.broker.later import Later
from headrace.broker.settings.access_table import STANDARD_AUTHORIZER
from headrace.wire.acls import Acl, AclOperation, AclPatternType, AclPermission, AclResourceType
from headrace.wire.apis import NAMES, request_class, response_class
from headrace.wire.codec import encode, read_message
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import Message
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.describe_groups_response import DescribeGroupsResponse
from tests.conformance.plain import build
from tests.unit.broker.share.bench import Bench

KEYS = {name: key for key, name in NAMES.items()}
MANY = 400
TOPICS = [f"t{number % 3 if number % 5 else number}" for number in range(MANY)]
"""Three of them exist, and are named again and again; the others do not."""
INDEXES = [number % 4 for number in range(MANY)]
REQUESTS: list[tuple[str, int, dict[str, Any]]] = [
    ("describe_groups", 0, {"groups": TOPICS}),
    ("describe_groups", 6, {"groups": TOPICS}),
    ("consumer_group_describe", 1, {"group_ids": TOPICS}),
    ("share_group_describe", 1, {"group_ids": TOPICS}),
    ("find_coordinator", 6, {"key_type": 0, "coordinator_keys": TOPICS}),
    ("describe_transactions", 0, {"transactional_ids": TOPICS}),
    ("describe_configs", 4, {"resources": [{"resource_type": 2, "resource_name": name} for name in TOPICS]}),
    ("metadata", 9, {"topics": [{"name": name} for name in TOPICS], "allow_auto_topic_creation": False}),
    ("describe_producers", 0, {"topics": [{"name": "t1", "partition_indexes": INDEXES}]}),
    (
        "offset_for_leader_epoch",
        4,
        {
            "topics": [
                {"topic": "t1", "partitions": [{"partition": index} for index in INDEXES]},
                *({"topic": name, "partitions": [{"partition": 0}]} for name in TOPICS),
            ]
        },
    ),
    ("offset_fetch", 5, {"group_id": "g", "topics": [{"name": "t1", "partition_indexes": INDEXES}] * 2}),
    (
        "offset_fetch",
        9,
        {
            "groups": [
                {"group_id": "few", "topics": [{"name": "t1", "partition_indexes": [0]}]},
                *({"group_id": "g", "topics": [{"name": name, "partition_indexes": [0, 1]} for name in TOPICS]},) * 2,
                *({"group_id": name, "topics": None} for name in TOPICS),
            ]
        },
    ),
    (
        "describe_share_group_offsets",
        1,
        {
            "groups": [
                {"group_id": "g", "topics": [{"topic_name": name, "partitions": [0, 9]} for name in TOPICS]},
                {"group_id": "g", "topics": [{"topic_name": "t1", "partitions": [1]}]},
            ]
        },
    ),
]  # fmt: skip


def bench_with(*acls: tuple[AclResourceType, str], **settings: str) -> Bench:
    bench = Bench(**settings)
    for number in range(3):
        bench.core.topics.create(f"t{number}", partitions=3, configs={})
    if acls:
        assert bench.core.access is not None
        bench.core.access.create(
            [
                Acl(
                    resource_type=kind,
                    resource_name=name,
                    pattern_type=AclPatternType.LITERAL,
                    principal=Call(0).principal,
                    host="*",
                    operation=AclOperation.ALL,
                    permission=AclPermission.ALLOW,
                )
                for kind, name in acls
            ]
        )
    return bench


def told(bench: Bench, api: str, version: int, fields: dict[str, Any]) -> tuple[Any, int]:
    """The response as the client reads it, and the turns of the loop until it was there."""
    request, call = build(request_class(KEYS[api]), fields), Call(api_version=version)
    answer = bench.core.handle(request, call)
    turns = 1
    while isinstance(answer, Later) and not answer.is_done:
        bench.core.settle()
        turns += 1
    response = answer
    if isinstance(answer, Later):
        try:
            response = answer.value
        except KafkaError as error:
            response = bench.core.failed(request, call, error)
    assert isinstance(response, Message)
    read, _ = read_message(response_class(KEYS[api]), version, encode(response, version))
    return read, turns


def unordered(message: Any) -> Any:
    """What is refused is behind the rest of its piece: the order of the items says nothing."""
    if isinstance(message, Message):
        return {field.name: unordered(getattr(message, field.name)) for field in message.SCHEMA}
    if isinstance(message, Sequence) and not isinstance(message, str | bytes):
        return sorted((unordered(item) for item in message), key=repr)
    return message


@pytest.mark.parametrize(("api", "version", "fields"), REQUESTS)
@pytest.mark.parametrize("has_access_control", [False, True])
def test_the_response_is_that_of_a_single_turn(
    api: str, version: int, fields: dict[str, Any], has_access_control: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = [AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.TRANSACTIONAL_ID]
    allowed = [(kind, name) for kind in kinds for name in ("t1", "t5", "t390", "g")]
    bench = (
        bench_with(*allowed, **{"authorizer.class.name": STANDARD_AUTHORIZER})
        if has_access_control
        else bench_with()
    )
    cut, turns = told(bench, api, version, fields)
    assert turns > 2
    monkeypatch.setattr(pieces, "PIECE", 1 << 30)
    whole, turns = told(bench, api, version, fields)
    assert turns == 1
    assert unordered(cut) == unordered(whole)
    if not has_access_control:
        assert cut == whole


def test_every_handler_that_is_cut_is_compared() -> None:
    cut = {NAMES[key] for key in SERVED if hasattr(handler_of(key), "CUTS")}
    assert cut == {api for api, _, _ in REQUESTS}


def test_an_error_of_the_whole_request_stands_alone() -> None:
    bench = bench_with(**{"authorizer.class.name": STANDARD_AUTHORIZER})
    topics = [{"name": name, "partition_indexes": [0]} for name in TOPICS]
    answer, turns = told(bench, "offset_fetch", 7, {"group_id": "g", "topics": topics})
    assert answer.error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert not answer.topics
    assert turns == 1


def test_pieces_become_larger_where_their_answers_are_small() -> None:
    groups = [f"g{number}" for number in range(5_000)]
    assert told(bench_with(), "describe_groups", 0, {"groups": groups})[1] < 15


def test_pieces_become_smaller_where_their_answers_are_large() -> None:
    """A topic of many partitions is as much work as many topics of one."""
    turns = []
    for partitions in (1, 300):
        bench = Bench()
        for number in range(300):
            bench.core.topics.create(f"t{number}", partitions=partitions, configs={})
        topics = [{"name": f"t{number}"} for number in range(300)]
        turns.append(told(bench, "metadata", 9, {"topics": topics})[1])
    assert turns[0] <= 6
    assert turns[1] > 30


def test_a_response_that_would_be_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "ANSWER_BYTES_MAX", 200_000)
    resources = [{"resource_type": 2, "resource_name": "t1"} for _ in range(1_000)]
    answer, turns = told(bench_with(), "describe_configs", 4, {"resources": resources})
    assert {result.error_code for result in answer.results} == {ErrorCode.INVALID_REQUEST}
    assert "200000 bytes; send several smaller requests" in answer.results[0].error_message
    assert turns < 10


def test_nothing_more_is_done_for_a_client_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_with()
    handled: list[int] = []
    handle = describe_groups.handle

    def count(core: BrokerCore, request: DescribeGroupsRequest, call: Call) -> DescribeGroupsResponse:
        handled.append(len(request.groups))
        return handle(core, request, call)

    monkeypatch.setattr(describe_groups, "handle", count)
    request = build(request_class(KEYS["describe_groups"]), {"groups": TOPICS})
    later = bench.core.handle(request, Call(api_version=6))
    assert isinstance(later, Later)
    bench.core.settle()
    later.abandon()
    while bench.core.slices.is_pending:
        bench.core.settle()
    assert len(handled) == 2


def test_errors_in_pieces_are_counted() -> None:
    bench = bench_with()
    told(bench, "describe_groups", 6, {"groups": TOPICS})
    counted = bench.core.metrics.counter("ErrorsPerSec", request="DescribeGroups", error="GROUP_ID_NOT_FOUND")
    assert counted.value == len(TOPICS)


def test_of_large_answers_one_at_a_time_is_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of many clients may ask for one: what is held for them meanwhile is little more than for one."""
    monkeypatch.setattr(pieces, "LARGE_BYTES", 2_000)
    bench = Bench()
    request = DescribeGroupsRequest(groups=["x" * 100] * 600)
    answers = [bench.core.handle(request, Call(api_version=0, connection_id=number)) for number in range(5)]
    later = [answer for answer in answers if isinstance(answer, Later)]
    assert len(later) == 5
    later[2].abandon()
    done: list[int] = []
    turns = 0
    ended: list[int] = []
    while bench.core.slices.is_pending:
        bench.core.settle()
        turns += 1
        for number, answer in enumerate(later):
            if answer.is_done and number not in done:
                done.append(number)
                ended.append(turns)
    assert done == [0, 1, 3, 4]
    # None gets on while another one does: else they would end one right after the other.
    assert min(after - before for before, after in pairwise(ended)) > 1
    alone = bench.core.handle(request, Call(api_version=0))
    assert isinstance(alone, Later)
    while not alone.is_done:
        bench.core.settle()
    assert encode(later[4].value, 0) == encode(alone.value, 0)
