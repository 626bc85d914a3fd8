"""Producers: sequence and epoch rules, the memory of the last five batches, and snapshots of all that."""

import pytest

from headrace.log.producers import (
    AppendOrigin,
    ProducerStateEntry,
    ProducerStates,
    SentBatch,
    decode_snapshot,
    encode_snapshot,
)
from headrace.wire.batches import SEQUENCE_MAX, read_header
from headrace.wire.errors import ErrorCode, KafkaError
from tests.unit.log.logs import DAY, NOW, batch


def send(
    states: ProducerStates,
    first_offset: int,
    producer: tuple[int, int, int],
    *,
    count: int = 1,
    transactional: bool = False,
    origin: AppendOrigin = AppendOrigin.CLIENT,
) -> None:
    header = read_header(batch(*["x"] * count, producer=producer, transactional=transactional))
    states.apply(states.decide(header, first_offset, origin=origin, now_ms=NOW))


def refusal(states: ProducerStates, producer: tuple[int, int, int], **more: bool) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        send(states, 100, producer, **more)  # type: ignore[arg-type]
    return caught.value.code


def test_an_unknown_producer_may_start_at_any_sequence() -> None:
    states = ProducerStates()
    send(states, 0, (7, 0, 42))
    assert states.entries[7].last_sequence == 42


def test_a_gap_in_sequences_is_refused() -> None:
    states = ProducerStates()
    send(states, 0, (7, 0, 0), count=3)
    assert refusal(states, (7, 0, 4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(states, (7, 0, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(states, 3, (7, 0, 3))


def test_sequences_start_again_after_their_largest_number() -> None:
    states = ProducerStates()
    send(states, 0, (7, 0, SEQUENCE_MAX - 1), count=2)
    send(states, 2, (7, 0, 0))
    assert states.entries[7].last_sequence == 0


def test_a_batch_may_hold_the_turn_of_the_sequence() -> None:
    states = ProducerStates()
    send(states, 0, (7, 0, SEQUENCE_MAX), count=3)
    assert states.entries[7].batches[-1].first_sequence == SEQUENCE_MAX
    assert states.entries[7].last_sequence == 1
    repeated = read_header(batch("x", "x", "x", producer=(7, 0, SEQUENCE_MAX)))
    assert states.duplicate_of(repeated) == states.entries[7].batches[-1]
    send(states, 3, (7, 0, 2))


def test_only_the_last_five_batches_are_known_again() -> None:
    states = ProducerStates()
    for number in range(7):
        send(states, number, (7, 0, number))
    known = [
        number
        for number in range(7)
        if states.duplicate_of(read_header(batch("x", producer=(7, 0, number)))) is not None
    ]
    assert known == [2, 3, 4, 5, 6]


def test_a_batch_of_another_length_or_epoch_is_no_repetition() -> None:
    states = ProducerStates()
    send(states, 0, (7, 0, 0), count=2)
    assert states.duplicate_of(read_header(batch("x", producer=(7, 0, 0)))) is None
    assert states.duplicate_of(read_header(batch("x", "x", producer=(7, 1, 0)))) is None


def test_an_older_epoch_is_fenced() -> None:
    states = ProducerStates()
    send(states, 0, (7, 3, 0))
    assert refusal(states, (7, 2, 1)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_newer_epoch_must_start_at_sequence_zero() -> None:
    states = ProducerStates()
    send(states, 0, (7, 0, 0))
    assert refusal(states, (7, 1, 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(states, 1, (7, 1, 0))
    assert [sent.last_offset for sent in states.entries[7].batches] == [1]


def test_the_brokers_own_batches_need_no_sequence() -> None:
    states = ProducerStates()
    send(states, 0, (7, 0, -1), transactional=True, origin=AppendOrigin.COORDINATOR)
    send(states, 1, (7, 0, -1), transactional=True, origin=AppendOrigin.COORDINATOR)
    assert states.open_transactions == {7: 0}


def test_a_transaction_takes_transactional_batches_only() -> None:
    states = ProducerStates()
    send(states, 5, (7, 0, 0), transactional=True)
    assert refusal(states, (7, 0, 1)) is ErrorCode.INVALID_TXN_STATE


def test_the_oldest_open_transaction_counts_until_it_ends() -> None:
    states = ProducerStates()
    send(states, 5, (7, 0, 0), transactional=True)
    send(states, 6, (8, 0, 0), transactional=True)
    send(states, 7, (7, 0, 1), transactional=True)
    assert states.first_open_offset() == 5
    states.apply(states.decide_marker(7, 0, 0, timestamp=NOW, now_ms=NOW))
    assert states.first_open_offset() == 6
    states.apply(states.decide_marker(8, 0, 0, timestamp=NOW, now_ms=NOW))
    assert states.first_open_offset() is None


def test_a_marker_of_a_newer_epoch_starts_sequences_anew() -> None:
    states = ProducerStates()
    send(states, 0, (7, 0, 9), transactional=True)
    states.apply(states.decide_marker(7, 1, 0, timestamp=NOW, now_ms=NOW))
    assert refusal(states, (7, 0, 10)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(states, (7, 1, 10)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(states, 2, (7, 1, 0))


def test_a_marker_of_the_same_epoch_keeps_the_sequence() -> None:
    states = ProducerStates()
    send(states, 0, (7, 0, 9), transactional=True)
    states.apply(states.decide_marker(7, 0, 0, timestamp=NOW, now_ms=NOW))
    send(states, 2, (7, 0, 10))


def test_markers_of_old_epochs_are_refused() -> None:
    states = ProducerStates()
    states.apply(states.decide_marker(7, 5, 3, timestamp=NOW, now_ms=NOW))
    with pytest.raises(KafkaError) as caught:
        states.decide_marker(7, 4, 3, timestamp=NOW, now_ms=NOW)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(KafkaError) as caught:
        states.decide_marker(7, 5, 2, timestamp=NOW, now_ms=NOW)
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_idle_producers_are_forgotten_but_not_in_a_transaction() -> None:
    states = ProducerStates()
    send(states, 0, (7, 0, 0))
    send(states, 1, (8, 0, 0), transactional=True)
    states.forget_idle(now_ms=NOW + DAY - 1, expiration_ms=DAY)
    assert set(states.entries) == {7, 8}
    states.forget_idle(now_ms=NOW + DAY, expiration_ms=DAY)
    assert set(states.entries) == {8}


def test_a_snapshot_keeps_everything_that_is_checked_later() -> None:
    states = ProducerStates()
    for number in range(6):
        send(states, number, (7, 2, number))
    send(states, 7, (9, 0, 0), transactional=True)
    send(states, 6, (8, 0, 0), transactional=True)
    states.apply(states.decide_marker(10, 4, 3, timestamp=NOW, now_ms=NOW))
    restored = decode_snapshot(encode_snapshot(states.entries.values()), now_ms=NOW)
    assert restored is not None
    assert restored.entries == states.entries
    assert list(restored.open_transactions.items()) == [(8, 6), (9, 7)]


def test_a_snapshot_as_kafka_writes_it_has_the_last_batch_alone() -> None:
    producer = ProducerStateEntry(7, 0, (SentBatch(3, 9, 0, NOW),), 1, -1, NOW, NOW)
    data = encode_snapshot([producer])
    assert len(data) == 10 + 46
    restored = decode_snapshot(data, now_ms=NOW)
    assert restored is not None
    assert restored.entries == {7: producer}


def test_a_torn_snapshot_is_known_as_such() -> None:
    data = encode_snapshot([ProducerStateEntry(7, 0, (SentBatch(3, 9, 0, NOW),))])
    assert decode_snapshot(data, now_ms=NOW) is not None
    for torn in (b"", data[:-1], data[:5], bytes(len(data)), data[:20] + b"\xff" + data[21:]):
        assert decode_snapshot(torn, now_ms=NOW) is None
