"""Leader epochs: where each ended, asked by clients that want to know whether the log was cut."""

from headrace.log.epochs import LeaderEpochs


def ends(epochs: LeaderEpochs, *asked: int) -> list[tuple[int, int]]:
    return [epochs.end_offset(epoch, leader_epoch=5, log_end_offset=100) for epoch in asked]


def test_an_epoch_ends_where_the_next_one_with_records_begins() -> None:
    epochs = LeaderEpochs([(1, 10), (3, 30)])
    assert ends(epochs, 0, 1, 2, 3, 4) == [(0, 10), (1, 30), (1, 30), (3, 100), (3, 100)]


def test_the_present_epoch_ends_at_the_logs_end_and_later_ones_are_unknown() -> None:
    assert ends(LeaderEpochs(), -1, 5, 6) == [(-1, -1), (5, 100), (-1, -1)]


def test_only_the_first_offset_of_an_epoch_is_noted() -> None:
    epochs = LeaderEpochs()
    for epoch, offset in ((0, 0), (0, 5), (2, 7), (1, 9)):
        epochs.assign(epoch, offset)
    assert epochs.entries == [(0, 0), (2, 7)]
    assert epochs.is_changed


def test_a_cut_tail_takes_its_epochs_along() -> None:
    epochs = LeaderEpochs([(0, 0), (1, 10), (2, 20)])
    epochs.cut_after(20)
    assert epochs.entries == [(0, 0), (1, 10)]


def test_after_a_cut_start_the_oldest_epoch_begins_there() -> None:
    epochs = LeaderEpochs([(0, 0), (1, 10), (2, 20)])
    epochs.cut_before(15)
    assert epochs.entries == [(1, 15), (2, 20)]
    unchanged = LeaderEpochs([(0, 0)])
    unchanged.cut_before(0)
    assert not unchanged.is_changed
