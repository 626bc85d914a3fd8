"""A message on its way to a socket holds large records by reference: same bytes, fewer copies."""

import pytest

from headrace.wire.codec import LARGE, Gathered, encode, write_message
from headrace.wire.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData


def response(*records: bytes | None) -> FetchResponse:
    partitions = [PartitionData(partition_index=index, records=data) for index, data in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=partitions)])


def gathered(message: FetchResponse, version: int) -> Gathered:
    out = Gathered(b"head")
    write_message(message, version, out)
    return out


@pytest.mark.parametrize("version", [4, 11, 12, 18])
@pytest.mark.parametrize(
    "records",
    [(b"a" * LARGE,), (b"a" * LARGE, b"b" * 10, None, b"", b"c" * (3 * LARGE)), (b"small",), ()],
    ids=["one large", "large and small", "small", "none"],
)
def test_the_pieces_are_the_message(records: tuple[bytes | None, ...], version: int) -> None:
    out = gathered(response(*records), version)
    whole = b"".join(out.pieces())
    assert whole == b"head" + encode(response(*records), version)
    assert out.size == len(whole)


def test_large_records_are_not_copied() -> None:
    large = b"a" * LARGE
    assert any(piece is large for piece in gathered(response(large), 12).pieces())


def test_small_records_make_no_pieces_of_their_own() -> None:
    out = gathered(response(b"a" * (LARGE - 1)), 12)
    assert out.pieces() == [out]
