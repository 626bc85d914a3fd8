"""Records in lists of bounded length: the same records as all at once."""

import pytest

from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import NewRecord, build_batch, read_chunks, read_records


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_chunks_hold_the_records_in_order(count: int) -> None:
    batch = build_batch([NewRecord(None, b"%d" % index) for index in range(count)])
    chunks = list(read_chunks(batch, 3))
    assert [record.value for chunk in chunks for record in chunk] == [
        record.value for record in read_records(batch)
    ]
    assert max(map(len, chunks)) <= 3


def test_records_that_are_not_what_the_header_says_are_corrupt() -> None:
    batch = build_batch([NewRecord(None, b"value")])
    with pytest.raises(KafkaError) as caught:
        list(read_chunks(batch[:-3]))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
