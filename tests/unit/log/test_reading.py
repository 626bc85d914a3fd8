"""Positions: what earlier reads remember is used while it holds and forgotten when it does not."""

from headrace.log.reading import HINTS_MAX
from tests.unit.log.logs import NOW, a_log, batch


def test_a_remembered_position_is_used_without_a_look_at_the_index() -> None:
    log = a_log()
    for _ in range(3):
        log.append(batch("x"), now_ms=NOW)
    segment = log.segments[0]
    log.reader.remember(1, segment, 12345 % segment.size)
    assert log.reader.locate(1) == (segment, 12345 % segment.size)
    log.reader.forget()
    assert log.reader.locate(1) == (segment, segment.size // 3)


def test_a_position_at_the_end_of_a_segment_leads_to_the_next_one() -> None:
    log = a_log(segment_bytes=200)
    log.append(batch("x" * 60), now_ms=NOW)
    assert log.reader.read(1, max_bytes=10).data == b""
    log.append(batch("y" * 60), now_ms=NOW)
    assert len(log.segments) == 2
    assert log.reader.locate(1) == (log.segments[1], 0)


def test_no_more_positions_are_remembered_than_the_bound() -> None:
    log = a_log()
    log.append(batch("x"), now_ms=NOW)
    for offset in range(10 * HINTS_MAX):
        log.reader.remember(offset, log.segments[0], 0)
        assert len(log.reader._hints) <= HINTS_MAX


def test_bytes_are_counted_across_segments_up_to_the_limit() -> None:
    log = a_log(segment_bytes=200)
    for _ in range(5):
        log.append(batch("x" * 60), now_ms=NOW)
    first, size = log.segments[0], log.segments[0].size
    counted = [log.reader._available(first, 0, before=before, limit=10**6) // size for before in (1, 2, 5)]
    assert counted == [1, 2, 5]
    assert log.reader._available(first, 0, before=5, limit=7) == 7
