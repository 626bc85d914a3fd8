"""What the model of the logs takes to be open, where records were deleted that had not reached the disk."""

import pytest

from tests.simulation.models.logs import Entry, LogModel

ID = 1000


def a_log(*entries: Entry) -> LogModel:
    log = LogModel("alpha", bytes(16), 0)
    log.add(entries)
    return log


def plain(offset: int) -> Entry:
    return Entry(offset, offset, None, b"%d" % offset, 0, 0)


def transactional(offset: int, producer_id: int = ID) -> Entry:
    return Entry(offset, offset, None, b"%d" % offset, 0, 0, producer_id, is_transactional=True)


def marker(offset: int, producer_id: int = ID) -> Entry:
    return Entry(offset, offset, None, None, 0, 0, producer_id, marker=True)


@pytest.mark.parametrize("end", [6, 5], ids=["nothing is cut", "the end is cut"])
def test_a_transaction_that_was_lost_is_not_open_again(end: int) -> None:
    """Seed 4831: the next power cut took the end of the log, and the deleted transaction was back."""
    log = a_log(plain(0), transactional(1), transactional(2))
    lost = log.lose_transaction(ID, before=3)
    assert [entry.offset for entry in lost] == [1, 2]
    assert (log.open, log.stable) == ({}, 3)
    log.add([plain(3), transactional(4), plain(5)])
    log.cut(end)
    assert (log.open, log.stable) == ({ID: 4}, 4)


def test_only_what_was_deleted_of_a_lost_transaction_is_lost() -> None:
    log = a_log(transactional(0, 7), transactional(1), marker(2), transactional(3), transactional(4, 7))
    lost = log.lose_transaction(ID, before=4)
    assert [entry.offset for entry in lost] == [3]
    assert sorted(log.entries) == [0, 1, 2, 4]
    log.cut(4)
    assert log.open == {7: 0}


@pytest.mark.parametrize("end", [6, 5], ids=["nothing is cut", "the end is cut"])
def test_a_transaction_whose_marker_was_lost_stays_open_where_it_began(end: int) -> None:
    log = a_log(transactional(0), marker(1), transactional(2, 7), marker(3, 7))
    assert log.open == {}
    lost = log.lose_markers(ID, 0, before=4)
    assert [entry.offset for entry in lost] == [1]
    assert log.open == {ID: 0}
    log.add([transactional(4), plain(5)])
    log.cut(end)
    assert log.open == {ID: 0}
