"""A request that fails as a whole: where its error code goes, and what of the request comes back with it.

The table has one case for each shape of response and each row of the tables in error_responses.py.
"""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.broker.call import Call, CloseConnection
from headrace.broker.handlers import SERVED, error_response, served_versions
from headrace.wire.apis import NAMES, request_class, response_class
from headrace.wire.codec import encode, read_message
from headrace.wire.errors import ErrorCode
from headrace.wire.message import Message
from tests.property.requests import Known, RequestMaker

NEWEST = 99
CODE = ErrorCode.KAFKA_STORAGE_ERROR
FENCED = ErrorCode.PRODUCER_FENCED
ID = bytes([7]) * 16
TEXT = "Disk error when trying to access log file on the disk."
CODELESS = {("describe_log_dirs", 1), ("describe_log_dirs", 2)}
"""No field of the response can carry the error of the whole request."""


def fields(message: object) -> Any:
    """The fields of a message that differ from the defaults of the schema, without their types."""
    if isinstance(message, list | tuple):
        return [fields(item) for item in message]
    if not isinstance(message, Message):
        return message
    empty = type(message)()
    names = [field.name for field in message.SCHEMA]
    changed = [name for name in names if fields(getattr(message, name)) != fields(getattr(empty, name))]
    return {name: fields(getattr(message, name)) for name in changed}


def built(message: type[Message], values: dict[str, Any]) -> Message:
    """The opposite of `fields`."""
    structs = {field.name: field.struct for field in message.SCHEMA if field.struct is not None}
    made = {
        name: [built(structs[name], item) for item in value] if name in structs and value else value
        for name, value in values.items()
    }
    return message(**made)


CASES: list[tuple[str, int, dict[str, Any], dict[str, Any]]] = [
    ("heartbeat", NEWEST, {"group_id": "g"}, {"error_code": CODE}),
    ("describe_cluster", NEWEST, {}, {"error_code": CODE, "error_message": "why"}),
    ("describe_client_quotas", NEWEST, {}, {"error_code": CODE, "error_message": "why", "entries": None}),
    ("describe_groups", 5, {"groups": ["g"]}, {"groups": [{"error_code": CODE, "group_id": "g"}]}),
    (
        "describe_groups",
        6,
        {"groups": ["g", "h"]},
        {
            "groups": [
                {"error_code": CODE, "error_message": "why", "group_id": "g"},
                {"error_code": CODE, "error_message": "why", "group_id": "h"},
            ]
        },
    ),
    (
        "describe_configs",
        NEWEST,
        {"resources": [{"resource_type": 2, "resource_name": "orders"}]},
        {
            "results": [
                {
                    "error_code": CODE,
                    "error_message": "why",
                    "resource_type": 2,
                    "resource_name": "orders",
                }
            ]
        },
    ),
    (
        "create_topics",
        NEWEST,
        {"topics": [{"name": "orders", "num_partitions": 3, "replication_factor": 1}]},
        {"topics": [{"name": "orders", "error_code": CODE, "error_message": "why"}]},
    ),
    ("delete_topics", 4, {"topic_names": ["t"]}, {"responses": [{"name": "t", "error_code": CODE}]}),
    (
        "delete_topics",
        6,
        {"topics": [{"name": None, "topic_id": ID}]},
        {"responses": [{"name": None, "topic_id": ID, "error_code": CODE, "error_message": "why"}]},
    ),
    (
        "describe_producers",
        NEWEST,
        {"topics": [{"name": "t", "partition_indexes": [1]}]},
        {
            "topics": [
                {
                    "name": "t",
                    "partitions": [{"partition_index": 1, "error_code": CODE, "error_message": "why"}],
                }
            ]
        },
    ),
    (
        "list_offsets",
        NEWEST,
        {"topics": [{"name": "t", "partitions": [{"partition_index": 1, "timestamp": 5}]}]},
        {"topics": [{"name": "t", "partitions": [{"partition_index": 1, "error_code": CODE}]}]},
    ),
    (
        "delete_records",
        NEWEST,
        {"topics": [{"name": "t", "partitions": [{"partition_index": 1, "offset": 5}]}]},
        {
            "topics": [
                {
                    "name": "t",
                    "partitions": [{"partition_index": 1, "low_watermark": -1, "error_code": CODE}],
                }
            ]
        },
    ),
    (
        "fetch",
        6,
        {"topics": [{"topic": "t", "partitions": [{"partition": 1, "log_start_offset": 5}]}]},
        {
            "responses": [
                {
                    "topic": "t",
                    "partitions": [{"partition_index": 1, "error_code": CODE, "high_watermark": -1}],
                }
            ]
        },
    ),
    ("fetch", 7, {"topics": [{"topic": "t", "partitions": [{"partition": 1}]}]}, {"error_code": CODE}),
    (
        "find_coordinator",
        3,
        {"key": "g"},
        {"error_code": CODE, "error_message": "why", "node_id": -1, "port": -1},
    ),
    (
        "find_coordinator",
        4,
        {"coordinator_keys": ["g"]},
        {
            "coordinators": [
                {"key": "g", "node_id": -1, "port": -1, "error_code": CODE, "error_message": "why"}
            ]
        },
    ),
    ("init_producer_id", NEWEST, {}, {"error_code": CODE, "producer_epoch": -1}),
    (
        "offset_fetch",
        1,
        {"group_id": "g", "topics": [{"name": "t", "partition_indexes": [1]}]},
        {
            "topics": [
                {
                    "name": "t",
                    "partitions": [{"partition_index": 1, "committed_offset": -1, "error_code": CODE}],
                }
            ]
        },
    ),
    ("offset_fetch", 7, {"group_id": "g", "topics": None}, {"error_code": CODE}),
    (
        "offset_fetch",
        NEWEST,
        {"groups": [{"group_id": "g"}]},
        {"groups": [{"group_id": "g", "error_code": CODE}]},
    ),
    (
        "produce",
        NEWEST,
        {"acks": -1, "topic_data": [{"topic_id": ID, "partition_data": [{"index": 1}]}]},
        {
            "responses": [
                {
                    "topic_id": ID,
                    "partition_responses": [
                        {"index": 1, "error_code": CODE, "base_offset": -1, "error_message": "why"}
                    ],
                }
            ]
        },
    ),
    (
        "metadata",
        NEWEST,
        {"topics": [{"topic_id": ID, "name": None}]},
        {"error_code": CODE, "topics": [{"error_code": CODE, "topic_id": ID}]},
    ),
    ("join_group", 6, {"member_id": "m"}, {"error_code": CODE, "member_id": "m"}),
    ("join_group", 7, {"member_id": "m"}, {"error_code": CODE, "member_id": "m", "protocol_name": None}),
    (
        "add_partitions_to_txn",
        3,
        {"v3_and_below_topics": [{"name": "t", "partitions": [1]}, {"name": "t", "partitions": [1]}]},
        {
            "results_by_topic_v3_and_below": [
                {
                    "name": "t",
                    "results_by_partition": [{"partition_index": 1, "partition_error_code": CODE}],
                }
            ]
        },
    ),
    (
        "write_txn_markers",
        NEWEST,
        {
            "markers": [
                {"producer_id": 4, "topics": [{"name": "t", "partition_indexes": [1]}]},
                {"producer_id": 4, "topics": [{"name": "u", "partition_indexes": [1]}]},
            ]
        },
        {
            "markers": [
                {
                    "producer_id": 4,
                    "topics": [
                        {"name": "t", "partitions": [{"partition_index": 1, "error_code": CODE}]},
                        {"name": "u", "partitions": [{"partition_index": 1, "error_code": CODE}]},
                    ],
                }
            ]
        },
    ),
    (
        "elect_leaders",
        NEWEST,
        {"topic_partitions": [{"topic": "t", "partitions": [1]}]},
        {
            "error_code": CODE,
            "replica_election_results": [
                {
                    "topic": "t",
                    "partition_result": [{"partition_id": 1, "error_code": CODE, "error_message": "why"}],
                }
            ],
        },
    ),
]


@pytest.mark.parametrize(("api", "version", "request_", "response"), CASES)
def test_the_error_goes_where_the_schema_has_room_for_it(
    api: str, version: int, request_: dict[str, Any], response: dict[str, Any]
) -> None:
    assert answer(api, version, request_, CODE, "why") == response


@pytest.mark.parametrize("api", ["alter_share_group_offsets", "delete_share_group_offsets"])
def test_an_error_of_share_offsets_always_has_a_text(api: str) -> None:
    assert answer(api, NEWEST, {}, CODE, None) == {"error_code": CODE, "error_message": TEXT}
    assert answer(api, NEWEST, {}, CODE, "why") == {"error_code": CODE, "error_message": "why"}


@pytest.mark.parametrize(
    "api",
    [
        "delete_share_group_state",
        "initialize_share_group_state",
        "read_share_group_state",
        "read_share_group_state_summary",
        "write_share_group_state",
    ],
)
def test_an_error_of_share_state_always_has_a_text(api: str) -> None:
    request = {"topics": [{"topic_id": ID, "partitions": [{"partition": 1, "leader_epoch": 5}]}]}
    if api == "delete_share_group_state":
        request = {"topics": [{"topic_id": ID, "partitions": [{"partition": 1}]}]}
    elif api == "initialize_share_group_state":
        request = {"topics": [{"topic_id": ID, "partitions": [{"partition": 1, "state_epoch": 5}]}]}
    partition = {"partition": 1, "error_code": CODE, "error_message": TEXT}
    assert answer(api, NEWEST, request, CODE, None) == {
        "results": [{"topic_id": ID, "partitions": [partition]}]
    }


@pytest.mark.parametrize(
    ("api", "version", "code"),
    [
        ("add_offsets_to_txn", 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        ("add_offsets_to_txn", 2, FENCED),
        ("end_txn", 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        ("end_txn", 2, FENCED),
        ("init_producer_id", 3, ErrorCode.INVALID_PRODUCER_EPOCH),
        ("init_producer_id", 4, FENCED),
    ],
)
def test_old_producers_are_told_an_error_that_they_know(api: str, version: int, code: ErrorCode) -> None:
    assert answer(api, version, {}, FENCED, None)["error_code"] == code


def answer(
    api: str, version: int, values: dict[str, Any], code: ErrorCode, message: str | None
) -> dict[str, Any]:
    """As a client reads it."""
    key = next(key for key, name in NAMES.items() if name == api)
    versions = served_versions(key)
    assert versions is not None
    version = min(version, versions[1])
    request = built(request_class(key), values)
    response = error_response(request, code, message, Call(api_version=version))
    read, _ = read_message(response_class(key), version, encode(response, version))
    found: dict[str, Any] = fields(read)
    return found


def codes(message: object) -> Iterator[int]:
    if isinstance(message, list | tuple):
        for item in message:
            yield from codes(item)
    elif isinstance(message, Message):
        for field in message.SCHEMA:
            value = getattr(message, field.name)
            if field.name.endswith("error_code") and value:
                yield value
            yield from codes(value)


@pytest.mark.parametrize("api_key", SERVED, ids=lambda key: NAMES[key])
def test_any_request_can_fail(api_key: int) -> None:
    """Whatever a request asks for, its error response fits the version and carries the code for all it names."""
    maker = RequestMaker(random.Random(api_key), Known(topic_ids=[ID]))
    versions = served_versions(api_key)
    assert versions is not None
    for version in range(versions[0], versions[1] + 1):
        found: list[int] = []
        for _ in range(20):
            request = maker.message(request_class(api_key), version)
            arrived, _ = read_message(type(request), version, encode(request, version))
            try:
                response = error_response(arrived, CODE, None, Call(api_version=version))
            except CloseConnection:
                continue
            read, _ = read_message(response_class(api_key), version, encode(response, version))
            found += codes(read)
        assert set(found) == (set() if (NAMES[api_key], version) in CODELESS else {CODE})
