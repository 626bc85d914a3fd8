"""Who held records, as Headrace's broker writes it beside their state in `__share_group_state`.

A tagged field of our own (tag 10,000) in the value of an update, or of the snapshot that takes its place. Kafka's
readers and formatters pass over tags that they do not know. A field has a format (one byte), then the ranges whose
holds end with this record: first offset, number of records, when they were acquired (milliseconds since 1970), and how
the hold ended. It ended at the record's timestamp. The first range of each member is followed by its member id, client
id and host. Holds in a format that is not known, or that cannot be read, are unknown.
"""

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter

from headrace.base.ranges import within
from headrace.share.changes import StateBatch
from headrace.share.holds import EndedHold, HoldEnd, PastHold
from headrace.wire.codec import MalformedMessage, read_uvarint, write_uvarint
from headrace.wire.share_state import Snapshot, Update

HOLDS_MAX = 2_000
"""Of a decision that ends more holds none are written. State is never refused because of them."""
NAME_MAX = 100
"""Characters of a client id or host; clients may choose longer ones."""
_FORMAT = b"\0"
_NAMED = 0x80
"""Beside the end of a hold: the member is named behind it. Else it is that of the range before."""
_RANGE = struct.Struct(">qIqB")
_ENDS = {int(end): end for end in HoldEnd}


def encode_member(member_id: str, client_id: str | None, client_host: str) -> bytes:
    """How a member is named; made once for each session."""
    out = bytearray()
    for text in (member_id, (client_id or "")[:NAME_MAX], client_host[:NAME_MAX]):
        data = text.encode()
        write_uvarint(out, len(data))
        out += data
    return bytes(out)


def encode_holds(ended: Sequence[EndedHold], name_of: Callable[[str], bytes], ahead_ms: int) -> bytes:
    """Empty if there are none, or too many. The wall clock is `ahead_ms` ahead of that of the holds."""
    if not ended or len(ended) > HOLDS_MAX:
        return b""
    if len(ended) > 1:
        ended = sorted(ended, key=_by_member)
    out, before = bytearray(_FORMAT), None
    for first, last, (member, since_ms, _), end in ended:
        if member == before:
            out += _RANGE.pack(first, last - first + 1, since_ms + ahead_ms, end)
        else:
            out += _RANGE.pack(first, last - first + 1, since_ms + ahead_ms, end | _NAMED)
            out += name_of(member)
            before = member
    return bytes(out)


def _by_member(ended: EndedHold) -> str:
    return ended.hold.member


def holds_of(body: Snapshot | Update, timestamp: int) -> list[PastHold]:
    """Those that ended with a record."""
    return decode_holds(body.holds, body.batches, timestamp)


def decode_holds(data: bytes, batches: Iterable[StateBatch], timestamp: int) -> list[PastHold]:
    """In order of offset. The state batches beside them say how often the records had been delivered."""
    if data[:1] != _FORMAT:
        return []
    try:
        holds = _decode(data, timestamp)
    except (MalformedMessage, struct.error, IndexError, UnicodeDecodeError):
        return []  # somebody else's field: the state beside it says what it says
    holds.sort()
    known = sorted(batches)
    return [
        part._replace(
            delivery_count=known[bisect_right(known, part.first, key=itemgetter(0)) - 1].delivery_count
        )
        for part in within(holds, known)
    ]


def _decode(data: bytes, timestamp: int) -> list[PastHold]:
    holds = []
    position, names = len(_FORMAT), ("", "", "")
    while position < len(data):
        first, records, acquired_at, end = _RANGE.unpack_from(data, position)
        position += _RANGE.size
        if end & _NAMED:
            names, position = _read_names(data, position)
        member_id, client_id, host = names
        holds.append(
            PastHold(
                first=first,
                last=first + records - 1,
                delivery_count=0,
                member_id=member_id,
                client_id=client_id,
                client_host=host,
                acquired_at=min(acquired_at, timestamp),
                ended_at=timestamp,
                end=_ENDS.get(end & ~_NAMED),
            )
        )
    return holds


def _read_names(data: bytes, position: int) -> tuple[tuple[str, str, str], int]:
    names = []
    for _ in range(3):
        size, position = read_uvarint(data, position)
        if position + size > len(data):
            raise MalformedMessage("holds of a share-partition: cut short in a name")
        names.append(data[position : position + size].decode())
        position += size
    member_id, client_id, host = names
    return (member_id, client_id, host), position
