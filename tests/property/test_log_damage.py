"""Bytes of a log change behind the broker's back: it opens all the same and never skips a record in silence.

Method: one byte of one file is changed, or a file is cut, lengthened or removed, after kill -9 and before anything
was synced, so that recovery looks at every batch. What is served then must be what was written, from the first
record on, up to an end or an error.
"""

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.log.disk import write_file
from headrace.log.memory_disk import MemoryDisk
from headrace.log.partition_log import PartitionLog
from headrace.wire.batches import split
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import read_records
from tests.unit.log.logs import NOW, batch, open_log

CONFIG: dict[str, object] = {"segment_bytes": 500, "index_interval_bytes": 60}


def written_log(disk: MemoryDisk) -> list[str]:
    """A dozen segments with an idempotent producer and transactions; the values, in order."""
    _, log = open_log(disk, **CONFIG)  # type: ignore[arg-type]
    values = []
    for number in range(40):
        value = f"{number}" * (number % 7)
        is_transactional = number % 5 == 4
        producer = (8, 0, number // 5) if is_transactional else (7, 0, number - number // 5)
        log.append(batch(value, producer=producer, transactional=is_transactional), now_ms=NOW)
        values.append(value)
        if is_transactional:
            log.append_marker(
                producer_id=8, producer_epoch=0, commit=number % 2 == 0, coordinator_epoch=0, now_ms=NOW
            )
    return values


def served(log: PartitionLog) -> tuple[list[str], KafkaError | None]:
    values: list[str] = []
    offset = log.start_offset
    try:
        while True:
            read = log.reader.read(offset, max_bytes=300)
            if not read.data:
                return values, None
            for position, header in split(read.data):
                if not header.is_control:
                    records = read_records(read.data[position:])
                    values += [(record.value or b"").decode() for record in records]
            offset = read.next_offset
    except KafkaError as error:
        return values, error


@settings(max_examples=100)
@given(
    st.sampled_from(["change", "cut", "lengthen", "remove"]),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(1, 255),
)
def test_what_is_served_is_what_was_written(how: str, which: int, where: int, change: int) -> None:
    disk = MemoryDisk(is_simulated=True)
    values = written_log(disk)
    names = disk.list("orders-0")
    path = f"orders-0/{names[which % len(names)]}"
    data = bytearray(disk.read(path))
    where = where % len(data) if data else 0
    if how == "remove":
        disk.remove(path)
    elif data:
        if how == "change":
            data[where] ^= change
        write_file(
            disk, path, {"cut": data[:where], "lengthen": data + bytes([change]) * where}.get(how, data)
        )
    disk.restart()
    manager, log = open_log(disk, **CONFIG)  # type: ignore[arg-type]
    found, error = served(log)
    if how == "remove" and path.endswith("/00000000000000000000.log"):
        assert log.start_offset == log.files.bases[0] > 0
        values = values[-len(found) :]
    assert found == values[: len(found)]
    if error is not None:
        assert error.code is ErrorCode.CORRUPT_MESSAGE
        assert log.damage is not None
    elif path.endswith("partition.metadata"):
        assert found == values or [name for name in disk.list() if name.endswith("-stray")]
    elif not path.endswith(".log"):
        assert found == values
    else:
        log.append(batch("still works"), now_ms=NOW)
    manager.close()


@settings(max_examples=75)
@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_changed_byte_before_other_batches_of_its_segment_is_reported(where: int, change: int) -> None:
    disk = MemoryDisk(is_simulated=True)
    values = written_log(disk)
    path = "orders-0/00000000000000000000.log"
    data = bytearray(disk.read(path))
    *before, last = [position for position, _ in split(data)]
    assert len(before) > 3
    where %= last
    in_epoch = any(position + 12 <= where < position + 16 for position in before)
    data[where] ^= change
    write_file(disk, path, data)
    disk.restart()
    _, log = open_log(disk, **CONFIG)  # type: ignore[arg-type]
    found, error = served(log)
    if in_epoch:  # the one field that nothing depends on and no checksum covers
        assert found == values
    else:
        assert found == values[: len(found)]
        assert error is not None
        assert error.code is ErrorCode.CORRUPT_MESSAGE
        assert "byte" in str(error)
