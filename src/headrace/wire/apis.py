"""The APIs by key: their names, their messages (imported on first use), and the headers around them."""

import struct
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

from headrace.wire.codec import MalformedMessage, read_uvarint, reader, writer
from headrace.wire.message import Message

API_VERSIONS = 18
NAMES: dict[int, str] = {
    0: "produce",
    1: "fetch",
    2: "list_offsets",
    3: "metadata",
    8: "offset_commit",
    9: "offset_fetch",
    10: "find_coordinator",
    11: "join_group",
    12: "heartbeat",
    13: "leave_group",
    14: "sync_group",
    15: "describe_groups",
    16: "list_groups",
    17: "sasl_handshake",
    18: "api_versions",
    19: "create_topics",
    20: "delete_topics",
    21: "delete_records",
    22: "init_producer_id",
    23: "offset_for_leader_epoch",
    24: "add_partitions_to_txn",
    25: "add_offsets_to_txn",
    26: "end_txn",
    27: "write_txn_markers",
    28: "txn_offset_commit",
    29: "describe_acls",
    30: "create_acls",
    31: "delete_acls",
    32: "describe_configs",
    33: "alter_configs",
    35: "describe_log_dirs",
    36: "sasl_authenticate",
    37: "create_partitions",
    42: "delete_groups",
    43: "elect_leaders",
    44: "incremental_alter_configs",
    45: "alter_partition_reassignments",
    46: "list_partition_reassignments",
    47: "offset_delete",
    48: "describe_client_quotas",
    49: "alter_client_quotas",
    50: "describe_user_scram_credentials",
    51: "alter_user_scram_credentials",
    55: "describe_quorum",
    57: "update_features",
    60: "describe_cluster",
    61: "describe_producers",
    65: "describe_transactions",
    66: "list_transactions",
    68: "consumer_group_heartbeat",
    69: "consumer_group_describe",
    71: "get_telemetry_subscriptions",
    72: "push_telemetry",
    74: "list_config_resources",
    75: "describe_topic_partitions",
    76: "share_group_heartbeat",
    77: "share_group_describe",
    78: "share_fetch",
    79: "share_acknowledge",
    83: "initialize_share_group_state",
    84: "read_share_group_state",
    85: "write_share_group_state",
    86: "delete_share_group_state",
    87: "read_share_group_state_summary",
    90: "describe_share_group_offsets",
    91: "alter_share_group_offsets",
    92: "delete_share_group_offsets",
}
_HEADER = struct.Struct(">hhih")
_INT = struct.Struct(">i")
_HEADER_SIZE_MIN = 10
_TAGS_MAX = 1_000
"""Tagged fields of a header. Kafka's clients send none."""


class RequestHeader(NamedTuple):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


@cache
def request_class(api_key: int) -> type[Message]:
    return _load(api_key, "request")


@cache
def response_class(api_key: int) -> type[Message]:
    return _load(api_key, "response")


def _load(api_key: int, kind: str) -> type[Message]:
    module = f"{NAMES[api_key]}_{kind}"
    name = "".join(word.capitalize() for word in module.split("_"))
    loaded: Any = getattr(import_module(f"headrace.wire.messages.{module}"), name)
    return loaded  # type: ignore[no-any-return]


def prepare(api_keys: Iterable[int]) -> None:
    """Compiles what writes requests and reads responses of these APIs, in their newest versions, beforehand.

    It takes a few milliseconds for each process. Otherwise the first request and response wait for it.
    """
    for api_key in api_keys:
        request, response = request_class(api_key), response_class(api_key)
        writer(request, request.VERSIONS[1])
        reader(response, response.VERSIONS[1])


def read_request_header(frame: bytes) -> tuple[RequestHeader, int]:
    """The header of a request, and where its body begins. An unknown API's header is read as far as it is sure."""
    if len(frame) < _HEADER_SIZE_MIN:
        raise MalformedMessage(f"a request of {len(frame)} bytes is too short for its header")
    api_key, api_version, correlation_id, length = _HEADER.unpack_from(frame)
    position = _HEADER_SIZE_MIN
    client_id = None
    if length >= 0:
        end = position + length
        if end > len(frame):
            raise MalformedMessage("unexpected end in the client ID")
        try:
            client_id = frame[position:end].decode()
        except UnicodeDecodeError:
            raise MalformedMessage("the client id is not UTF-8") from None
        position = end
    elif length < -1:
        raise MalformedMessage(f"a client id of {length} bytes")
    if api_key in NAMES and api_version >= request_class(api_key).FLEXIBLE_FROM:
        position = _skip_tags(frame, position)
    return RequestHeader(api_key, api_version, correlation_id, client_id), position


def _skip_tags(frame: bytes, position: int) -> int:
    try:
        if not frame[position]:
            return position + 1  # there are none, as always
        count, position = read_uvarint(frame, position)
        if count > _TAGS_MAX:
            raise MalformedMessage(f"{count} tagged fields in the header; allowed are {_TAGS_MAX}")
        for _ in range(count):
            _, position = read_uvarint(frame, position)
            size, position = read_uvarint(frame, position)
            position += size
    except IndexError:
        raise MalformedMessage("unexpected end in the header's tagged fields") from None
    if position > len(frame):
        raise MalformedMessage("unexpected end in the header's tagged fields")
    return position


def write_request_header(out: bytearray, header: RequestHeader) -> None:
    client_id = None if header.client_id is None else header.client_id.encode()
    length = -1 if client_id is None else len(client_id)
    out += _HEADER.pack(header.api_key, header.api_version, header.correlation_id, length)
    out += client_id or b""
    if header.api_version >= request_class(header.api_key).FLEXIBLE_FROM:
        out.append(0)


@cache
def response_header_has_tags(api_key: int, api_version: int) -> bool:
    """ApiVersions answers with the old header in every version: its client may not know yet what we speak."""
    return api_key != API_VERSIONS and api_version >= response_class(api_key).FLEXIBLE_FROM


def read_response_header(api_key: int, api_version: int, frame: bytes) -> tuple[int, int]:
    """The correlation id of a response, and where its body begins."""
    if len(frame) < 4:
        raise MalformedMessage(f"a response of {len(frame)} bytes is too short for its header")
    (correlation_id,) = _INT.unpack_from(frame)
    position = 4
    if response_header_has_tags(api_key, api_version):
        position = _skip_tags(frame, position)
    return correlation_id, position
