"""Short ways between bytes and the usual requests and responses of a share session.

In the steady state a fetch names no partitions and a ShareAcknowledge has one range with one type. Their frames differ
in a few numbers of fixed size, so everything before these numbers is kept and only the numbers are packed. The usual
responses (see `core/usual.py`) are read with one look at all their fields at once. Whatever does not match in every
byte is left to the codec: each function here returns None for it.
"""

import struct
from collections.abc import Callable

from headrace.client.core.usual import UsualAcknowledge, UsualFetch
from headrace.wire.codec import MalformedMessage, read_uvarint
from headrace.wire.message import Message
from headrace.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest
from headrace.wire.messages.share_fetch_request import ShareFetchRequest

VERSION = 2
"""The one version of the share APIs that is known here. Others take the general way."""
FETCH_API, ACKNOWLEDGE_API = ShareFetchRequest.API_KEY, ShareAcknowledgeRequest.API_KEY
NULL, NONE, ONE, TAGS = 0, 1, 2, 0
"""A compact string that is null; the lengths of empty arrays and of those with one element; no tagged fields."""

# Epoch, four limits, the batch size, acquire mode, is_renew_ack; no topics, none forgotten.
_FETCH = struct.Struct(">iiiiiib?BBB")
# Epoch, is_renew_ack, one topic, one partition of it, one range with one type.
_ACKNOWLEDGE = struct.Struct(">i?B16sBiBqqBbBBBB")
# Correlation id, throttle time, error, lock timeout; one topic, one partition of it with two errors and a leader.
_FETCHED = struct.Struct(">iBihBiB16sBihBhBiiB")
_ACQUIRED = struct.Struct(">BqqhBBBBB")
_ACKNOWLEDGED = struct.Struct(">iBihBiB16sBihBiiBBBBB")


def numbers_of(request: Message, version: int) -> bytes | None:
    """What comes behind the group and the member in a usual request."""
    if version != VERSION:
        return None
    if isinstance(request, ShareFetchRequest):
        if request.topics or request.forgotten_topics_data or request.acquire_only:
            return None
        return _FETCH.pack(
            request.share_session_epoch,
            request.max_wait_ms,
            request.min_bytes,
            request.max_bytes,
            request.max_records,
            request.batch_size,
            request.share_acquire_mode,
            request.is_renew_ack,
            NONE,
            NONE,
            TAGS,
        )
    if not isinstance(request, ShareAcknowledgeRequest) or len(request.topics) != 1:
        return None
    (topic,) = request.topics
    if len(topic.partitions) != 1:
        return None
    (partition,) = topic.partitions
    if len(partition.acknowledgement_batches) != 1:
        return None
    (batch,) = partition.acknowledgement_batches
    if len(batch.acknowledge_types) != 1:
        return None
    return _ACKNOWLEDGE.pack(
        request.share_session_epoch,
        request.is_renew_ack,
        ONE,
        topic.topic_id,
        ONE,
        partition.partition_index,
        ONE,
        batch.first_offset,
        batch.last_offset,
        ONE,
        batch.acknowledge_types[0],
        TAGS,
        TAGS,
        TAGS,
        TAGS,
    )


class KeptFrames:
    """The beginnings of usual requests, which stay the same as long as a member has its group and its id."""

    __slots__ = ("_group_id", "_member_id", "_starts")

    def __init__(self) -> None:
        self._group_id: str | None = None
        self._member_id: str | None = None
        self._starts: dict[int, bytes] = {}

    def frame(self, request: Message, version: int) -> bytearray | None:
        """The whole frame, but for its correlation id; None when there is nothing kept for this request."""
        start = self._starts.get(request.API_KEY)
        if (
            start is None
            or request.group_id != self._group_id  # type: ignore[attr-defined]
            or request.member_id != self._member_id  # type: ignore[attr-defined]
        ):
            return None
        numbers = numbers_of(request, version)
        return None if numbers is None else bytearray(start + numbers)

    def keep(self, request: Message, version: int, frame: bytearray) -> None:
        """Remembers a frame that the codec has written."""
        if request.API_KEY not in (FETCH_API, ACKNOWLEDGE_API):
            return
        numbers = numbers_of(request, version)
        if numbers is None or not frame.endswith(numbers):
            return
        group_id, member_id = request.group_id, request.member_id  # type: ignore[attr-defined]
        if (group_id, member_id) != (self._group_id, self._member_id):
            self._group_id, self._member_id, self._starts = group_id, member_id, {}
        self._starts[request.API_KEY] = bytes(frame[: len(frame) - len(numbers)])


def read_fetch(frame: bytes) -> UsualFetch | None:
    """A response to a ShareFetch, from its correlation id on."""
    if len(frame) < _FETCHED.size + 1 + _ACQUIRED.size:
        return None
    (
        _, header_tags, throttle_ms, code, text, lock_ms, topics, topic_id, partitions,
        partition, partition_code, partition_text, ack_code, ack_text, _, _, leader_tags,
    ) = _FETCHED.unpack_from(frame)  # fmt: skip
    if (
        topics != ONE
        or partitions != ONE
        or code
        or throttle_ms
        or partition_code
        or ack_code
        or header_tags
        or leader_tags
        or text != NULL
        or partition_text != NULL
        or ack_text != NULL
    ):
        return None
    position = _FETCHED.size
    size = frame[position]
    if size < 128:
        position += 1
    else:
        try:
            size, position = read_uvarint(frame, position)
        except MalformedMessage:
            return None  # the codec says what is wrong with it
    end = position + size - 1
    if end < position or end + _ACQUIRED.size != len(frame):
        return None
    acquired, first, last, delivery_count, *tags, endpoints, end_tags = _ACQUIRED.unpack_from(frame, end)
    if acquired != ONE or endpoints != NONE or end_tags or any(tags) or first > last:
        return None
    return UsualFetch(lock_ms, topic_id, partition, first, last, delivery_count, frame[position:end])


def read_acknowledge(frame: bytes) -> UsualAcknowledge | None:
    """A response to a ShareAcknowledge, from its correlation id on."""
    if len(frame) != _ACKNOWLEDGED.size:
        return None
    (
        _, header_tags, throttle_ms, code, text, lock_ms, topics, topic_id, partitions,
        partition, partition_code, partition_text, _, _, *tags, endpoints, end_tags,
    ) = _ACKNOWLEDGED.unpack(frame)  # fmt: skip
    if (
        topics != ONE
        or partitions != ONE
        or code
        or throttle_ms
        or partition_code
        or header_tags
        or text != NULL
        or partition_text != NULL
        or endpoints != NONE
        or end_tags
        or any(tags)
    ):
        return None
    return UsualAcknowledge(lock_ms, topic_id, partition)


UsualReader = Callable[[bytes], UsualFetch | UsualAcknowledge | None]
READERS: dict[tuple[int, int], UsualReader] = {
    (FETCH_API, VERSION): read_fetch,
    (ACKNOWLEDGE_API, VERSION): read_acknowledge,
}
"""By API and version."""
