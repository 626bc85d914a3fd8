"""What is refused of very large requests: nothing is lost in several turns, and little is logged."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from headrace.broker.call import Call, CloseConnection
from headrace.broker.later import Later
from headrace.broker.security import acls
from headrace.broker.security.acls import LOGGED_OF_REQUEST_MAX
from headrace.broker.security.rules import CHECKED_PER_STEP
from headrace.broker.settings.access_table import STANDARD_AUTHORIZER
from headrace.wire.acls import Acl, AclOperation, AclPatternType, AclPermission, AclResourceType
from headrace.wire.apis import NAMES, request_class
from headrace.wire.errors import ErrorCode
from tests.conformance.plain import build
from tests.unit.broker.share.bench import Bench

KEYS = {name: key for key, name in NAMES.items()}
MANY = 2 * CHECKED_PER_STEP + 100
NAMED = [f"t{number}" for number in range(MANY)]
ALLOWED = NAMED[::300]
CREATED, DENIED = ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def bench() -> Bench:
    bench = Bench(**{"authorizer.class.name": STANDARD_AUTHORIZER})
    for name in ALLOWED:
        allow(bench, AclResourceType.TOPIC, name)
    allow(bench, AclResourceType.GROUP, "g")
    return bench


def allow(bench: Bench, kind: AclResourceType, name: str) -> None:
    assert bench.core.access is not None
    bench.core.access.create(
        [
            Acl(
                kind,
                name,
                AclPatternType.LITERAL,
                Call(0).principal,
                "*",
                AclOperation.ALL,
                AclPermission.ALLOW,
            )
        ]
    )


def ask(bench: Bench, api: str, version: int, **fields: Any) -> tuple[Any, int]:
    """The response, and the turns it took."""
    answer: Any = bench.core.handle(build(request_class(KEYS[api]), fields), Call(api_version=version))
    turns = 1
    while isinstance(answer, Later) and not answer.is_done:
        bench.core.settle()
        turns += 1
    return answer.value if isinstance(answer, Later) else answer, turns


def create_topics(bench: Bench) -> tuple[dict[str, int], int]:
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in NAMED]
    answer, turns = ask(bench, "create_topics", 7, topics=topics, timeout_ms=1_000)
    return {topic.name: topic.error_code for topic in answer.topics}, turns


def delete_topics(bench: Bench) -> tuple[dict[str, int], int]:
    create_topics(bench)
    answer, turns = ask(bench, "delete_topics", 5, topic_names=NAMED, timeout_ms=1_000)
    return {topic.name: topic.error_code for topic in answer.responses}, turns


def list_offsets(bench: Bench) -> tuple[dict[str, int], int]:
    create_topics(bench)
    topics = [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]} for name in NAMED]
    answer, turns = ask(bench, "list_offsets", 7, topics=topics)
    return {topic.name: topic.partitions[0].error_code for topic in answer.topics}, turns


def offset_commit(bench: Bench) -> tuple[dict[str, int], int]:
    create_topics(bench)
    topics = [{"name": name, "partitions": [{"partition_index": 0, "committed_offset": 1}]} for name in NAMED]
    answer, turns = ask(
        bench, "offset_commit", 9, group_id="g", generation_id_or_member_epoch=-1, topics=topics
    )
    return {topic.name: topic.partitions[0].error_code for topic in answer.topics}, turns


@pytest.mark.parametrize("act", [create_topics, delete_topics, list_offsets, offset_commit])
def test_very_many_permissions_are_looked_up_over_several_turns(
    bench: Bench, act: Callable[[Bench], tuple[dict[str, int], int]]
) -> None:
    codes, turns = act(bench)
    assert codes == {name: CREATED if name in ALLOWED else DENIED for name in NAMED}
    assert turns >= 3


def test_records_without_acks_for_very_many_topics_that_may_not_be_written_to_end_the_connection(
    bench: Bench,
) -> None:
    data = [{"name": name, "partition_data": []} for name in NAMED]
    with pytest.raises(CloseConnection):
        ask(bench, "produce", 12, acks=0, topic_data=data)
    with pytest.raises(CloseConnection):
        ask(bench, "produce", 12, acks=0, topic_data=data[1:3])
    assert ask(bench, "produce", 12, acks=0, topic_data=data[:1])[0] is None


@pytest.mark.parametrize("api", ["describe_groups", "delete_groups"])
def test_a_request_writes_few_lines_to_the_log_for_what_it_is_refused(
    bench: Bench, caplog: pytest.LogCaptureFixture, api: str
) -> None:
    """Also one that is handled in pieces, between which others are handled."""
    field = "groups" if api == "describe_groups" else "groups_names"
    caplog.set_level(logging.INFO, acls.logger.name)
    bench.core.slices.run(_ask_something_else(bench))
    ask(bench, api, 0, **{field: NAMED})
    lines = [record.getMessage() for record in caplog.records if "other" not in record.getMessage()]
    assert len(lines) == LOGGED_OF_REQUEST_MAX + 1
    assert lines[0].endswith("on GROUP t0")
    assert "more in the same request" in lines[-1]
    caplog.clear()
    ask(bench, api, 0, **{field: ["last"]})
    assert [record.getMessage().endswith("on GROUP last") for record in caplog.records] == [True]


def _ask_something_else(bench: Bench) -> Any:
    for number in range(3):
        call = Call(api_version=0, connection_id=7)
        bench.core.handle(
            build(request_class(KEYS["delete_groups"]), {"groups_names": [f"other{number}"]}), call
        )
        yield
