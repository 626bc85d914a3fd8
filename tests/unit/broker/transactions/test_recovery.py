"""What a power cut leaves in partitions: adopted where the journal allows it, aborted where nothing claims it."""

from headrace.broker.transactions import recovery
from headrace.broker.transactions.coordinator import ProducerIdentity
from headrace.broker.transactions.states import TransactionState
from tests.unit.broker.transactions.fake_core import FakeCore, Marker

P0, P1 = ("orders", 0), ("orders", 1)


def start(core: FakeCore) -> ProducerIdentity:
    producer = core.transactions.initialize("t", timeout_ms=60_000).value
    assert producer is not None
    return producer


def write(core: FakeCore, producer: ProducerIdentity, place: tuple[str, int]) -> None:
    core.transactions.verify_or_add("t", *producer, [place], may_add=True)
    core.write(producer, *place)


def restarted(core: FakeCore) -> FakeCore:
    after = core.crash(keep_data=True)
    after.transactions.load()
    return after


def test_a_partition_whose_joining_was_lost_is_put_back(core: FakeCore) -> None:
    producer = start(core)
    write(core, producer, P0)
    core.hold()
    write(core, producer, P1)
    after = restarted(core)
    transaction = after.transactions.describe("t")
    assert transaction is not None
    assert transaction.partitions == {P0, P1}
    after.transactions.end("t", producer, commit=True, client_version=2)
    assert [marker.commit for marker in after.markers(*P1)] == [True]


def test_a_transaction_whose_beginning_was_lost_is_open_again(core: FakeCore) -> None:
    producer = start(core)
    core.hold()
    write(core, producer, P0)
    write(core, producer, P1)
    after = restarted(core)
    transaction = after.transactions.describe("t")
    assert transaction is not None
    assert (transaction.state, transaction.partitions) == (TransactionState.ONGOING, {P0, P1})
    after.advance(60_000)
    assert [marker.commit for marker in after.markers(*P0)] == [False], "it times out like any other"


def test_what_was_put_back_is_journalled(core: FakeCore) -> None:
    producer = start(core)
    core.hold()
    write(core, producer, P0)
    twice = restarted(restarted(core))
    transaction = twice.transactions.describe("t")
    assert transaction is not None
    assert transaction.partitions == {P0}


def test_records_that_nobody_claims_are_aborted(core: FakeCore) -> None:
    core.write((77, 3), *P0)
    after = restarted(core)
    assert after.markers(*P0) == [Marker(77, 3, commit=False, coordinator_epoch=0)]


def test_a_transaction_whose_records_are_all_deleted_is_found_all_the_same(core: FakeCore) -> None:
    core.write((77, 3), *P0)
    log = core.topics.require(*P0).log
    log.start_offset = log.end_offset
    found = recovery.open_transactions(core.topics)  # type: ignore[arg-type]
    assert [(each.place, each.producer_id) for each in found] == [(P0, 77)]


def test_a_partition_that_takes_no_marker_does_not_stop_the_start(core: FakeCore) -> None:
    core.write((77, 3), *P0)
    core.write((77, 3), *P1)
    after = core.crash(keep_data=True)
    after.refuse()
    after.transactions.load()
    assert [len(after.markers(*P0)), len(after.markers(*P1))] == [0, 1]


def test_records_of_a_past_epoch_are_aborted(core: FakeCore) -> None:
    old = start(core)
    start(core)
    core.write(old, *P0)
    after = restarted(core)
    assert after.markers(*P0) == [Marker(*old, commit=False, coordinator_epoch=0)]


def test_records_of_an_epoch_that_the_journal_has_lost_are_aborted(core: FakeCore) -> None:
    """With headrace.flush=os: the journal's own markers would be refused, and readers would wait for ever."""
    producer = start(core)
    write(core, producer, P0)
    core.write((producer.producer_id, 2), *P0)
    after = restarted(core)
    after.advance(60_000)
    assert after.markers(*P0) == [Marker(producer.producer_id, 2, commit=False, coordinator_epoch=0)]


def test_pending_offsets_that_nobody_claims_are_dropped(core: FakeCore) -> None:
    core.topics.internal("__consumer_offsets")
    core.write((77, 3), "__consumer_offsets", 5)
    after = core.crash()
    after.transactions.load()
    assert after.groups.completed == [(77, 5, False)]


def test_open_transactions_that_the_journal_knows_are_left_alone(core: FakeCore) -> None:
    producer = start(core)
    write(core, producer, P0)
    found = recovery.open_transactions(core.topics)  # type: ignore[arg-type]
    repaired = recovery.repair({each.transactional_id: each for each in core.transactions}, found, now_ms=0)
    assert repaired == ({}, [])


def test_a_decision_does_not_end_the_next_transaction(core: FakeCore) -> None:
    """The journal has lost that the first one is complete, and that the next has begun."""
    producer = start(core)
    write(core, producer, P0)
    core.hold()
    core.transactions.end("t", producer, commit=True, client_version=2)
    core.sync()
    core.sync()
    assert [marker.commit for marker in core.markers(*P0)] == [True]
    core.write((producer.producer_id, producer.producer_epoch + 1), *P0)
    after = restarted(core)
    assert [marker.commit for marker in after.markers(*P0)] == [True, False, True]


def test_a_decision_whose_marker_was_lost_ends_its_own_records(core: FakeCore) -> None:
    producer = start(core)
    write(core, producer, P0)
    core.hold()
    core.transactions.end("t", producer, commit=True, client_version=2)
    core.sync()
    core.topics.require(*P0).log.entries.pop()
    after = restarted(core)
    assert [marker.commit for marker in after.markers(*P0)] == [True]
