"""The coordinator on a fake core: journal, markers, durability, deadlines, crashes. Nothing sleeps."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from headrace.broker.later import Later
from headrace.broker.transactions.coordinator import ProducerIdentity
from headrace.broker.transactions.ending import RETRY_MS
from headrace.broker.transactions.machine import EPOCH_LAST, EPOCH_MAX, TransactionMetadata
from headrace.broker.transactions.states import TransactionState
from headrace.broker.transactions.sweep import TOMBSTONES_MAX
from headrace.wire.errors import ErrorCode, KafkaError
from tests.unit.broker.transactions.fake_core import FakeCore, Marker, PowerLost

TIMEOUT_MS = 60_000
V1, V2 = 0, 2
P0, P1 = ("orders", 0), ("orders", 1)
OFFSETS = ("__consumer_offsets", 3)


def initialize(
    core: FakeCore, transactional_id: str = "t", expected: ProducerIdentity | None = None
) -> ProducerIdentity:
    identity = core.transactions.initialize(transactional_id, timeout_ms=TIMEOUT_MS, expected=expected).value
    assert identity is not None
    return identity


def add(
    core: FakeCore, producer: ProducerIdentity, *places: tuple[str, int], version: int = V2
) -> Later[None]:
    return core.transactions.add_partitions("t", producer, places, client_version=version)


def end(
    core: FakeCore, producer: ProducerIdentity, *, commit: bool = True, version: int = V2
) -> Later[ProducerIdentity]:
    return core.transactions.end("t", producer, commit=commit, client_version=version)


def state(core: FakeCore, transactional_id: str = "t") -> TransactionMetadata:
    transaction = core.transactions.describe(transactional_id)
    assert transaction is not None
    return transaction


def code_of(action: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        action()
    return caught.value.code


def set_epoch(core: FakeCore, producer: ProducerIdentity, epoch: int) -> ProducerIdentity:
    """As if the producer had been initialized so often."""
    core.transactions._keep(replace(state(core), producer_epoch=epoch))
    return ProducerIdentity(producer.producer_id, epoch)


def test_a_commit_marks_every_partition_and_gives_the_next_epoch(core: FakeCore) -> None:
    producer = initialize(core)
    add(core, producer, P0, P1)
    following = end(core, producer).value
    assert following == (producer.producer_id, producer.producer_epoch + 1)
    expected = Marker(*following, commit=True, coordinator_epoch=0)
    assert core.markers(*P0) == core.markers(*P1) == [expected]
    assert core.markers("orders", 2) == []
    assert state(core).state is TransactionState.COMPLETE_COMMIT


def test_an_abort_of_an_old_client_keeps_its_epoch(core: FakeCore) -> None:
    producer = initialize(core)
    add(core, producer, P0, version=V1)
    assert end(core, producer, commit=False, version=V1).value == producer
    assert core.markers(*P0) == [Marker(*producer, commit=False, coordinator_epoch=0)]
    assert state(core).state is TransactionState.COMPLETE_ABORT


def test_readers_waiting_on_marked_partitions_are_woken(core: FakeCore) -> None:
    producer = initialize(core)
    add(core, producer, P0)
    core.woken.clear()
    end(core, producer)
    assert P0 in core.woken


@pytest.mark.parametrize("commit", [True, False])
def test_the_group_coordinator_hears_of_the_end_after_its_marker(core: FakeCore, commit: bool) -> None:
    core.topics.internal(OFFSETS[0])
    producer = initialize(core)
    add(core, producer, OFFSETS)
    end(core, producer, commit=commit)
    assert core.groups.completed == [(producer.producer_id, 3, commit)]
    assert len(core.markers(*OFFSETS)) == 1


def test_two_transactional_ids_do_not_touch_each_other(core: FakeCore) -> None:
    first, second = initialize(core, "t"), initialize(core, "u")
    assert first.producer_id != second.producer_id
    add(core, first, P0)
    core.transactions.add_partitions("u", second, [P0], client_version=V2)
    end(core, first)
    assert state(core, "u").state is TransactionState.ONGOING


def test_the_markers_wait_for_the_decision_and_the_answer_for_the_markers(core: FakeCore) -> None:
    producer = initialize(core)
    add(core, producer, P0)
    core.hold()
    answer = end(core, producer)
    assert state(core).state is TransactionState.PREPARE_COMMIT
    assert core.markers(*P0) == []
    core.sync()  # the decision is durable
    assert len(core.markers(*P0)) == 1
    assert not answer.is_done
    core.sync()  # the marker is durable
    assert not answer.is_done
    assert state(core).state is TransactionState.PREPARE_COMMIT
    core.sync()  # the completion is durable
    assert answer.is_done
    assert state(core).state is TransactionState.COMPLETE_COMMIT


def test_while_it_ends_every_other_request_has_to_wait(core: FakeCore) -> None:
    producer = initialize(core)
    add(core, producer, P0)
    core.hold()
    end(core, producer)
    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
    following = ProducerIdentity(producer.producer_id, producer.producer_epoch + 1)
    assert code_of(lambda: add(core, following, P1)) is concurrent
    assert code_of(lambda: end(core, producer)) is concurrent
    assert code_of(lambda: initialize(core)) is concurrent
    assert code_of(lambda: core.transactions.missing("t", following, [P0])) is concurrent
    core.sync_all()
    assert add(core, following, P1) is not None


def test_a_description_lists_only_partitions_without_their_marker(core: FakeCore) -> None:
    producer = initialize(core)
    add(core, producer, P0, P1)
    assert state(core).partitions == {P0, P1}
    core.hold()
    end(core, producer)
    assert state(core).partitions == {P0, P1}
    core.sync()
    assert state(core).state is TransactionState.PREPARE_COMMIT
    assert state(core).partitions == frozenset()


def test_answers_wait_until_the_journal_is_durable(core: FakeCore) -> None:
    core.hold()
    answer = core.transactions.initialize("t", timeout_ms=TIMEOUT_MS)
    assert not answer.is_done
    core.sync()
    producer = answer.value
    assert producer is not None
    added = add(core, producer, P0)
    assert not added.is_done
    core.sync()
    assert added.is_done


def test_adding_what_is_there_writes_nothing(core: FakeCore) -> None:
    producer = initialize(core)
    add(core, producer, P0)
    before = core.appends
    assert add(core, producer, P0).is_done
    assert core.appends == before


def test_a_retried_end_is_answered_like_the_first_and_marks_nothing(core: FakeCore) -> None:
    producer = initialize(core)
    add(core, producer, P0)
    first = end(core, producer).value
    before = core.appends
    assert end(core, producer).value == first
    assert core.appends == before


def test_aborting_nothing_still_moves_the_epoch_of_a_new_client(core: FakeCore) -> None:
    producer = initialize(core)
    assert end(core, producer, commit=False).value == (producer.producer_id, producer.producer_epoch + 1)


def test_used_up_epochs_bring_a_new_producer_id_with_the_end(core: FakeCore) -> None:
    producer = set_epoch(core, initialize(core), EPOCH_LAST)
    add(core, producer, P0)
    following = end(core, producer).value
    assert following.producer_epoch == 0
    assert following.producer_id != producer.producer_id
    assert core.markers(*P0)[-1] == Marker(producer.producer_id, EPOCH_MAX, True, 0)
    assert end(core, producer).value == following, "the retry gets the same identity"
    assert add(core, following, P0).is_done


def test_partitions_of_a_deleted_topic_do_not_hold_up_the_end(core: FakeCore) -> None:
    producer = initialize(core)
    add(core, producer, P0, ("gone", 0))
    core.topics.create("gone", 1)
    del core.topics.by_name["gone"]
    assert end(core, producer).is_done
    assert len(core.markers(*P0)) == 1


def test_a_partition_that_knows_a_later_epoch_needs_no_marker(core: FakeCore) -> None:
    producer = initialize(core)
    add(core, producer, P0, P1)
    core.write((producer.producer_id, 30), *P0)
    assert end(core, producer).is_done
    assert core.markers(*P0) == []
    assert len(core.markers(*P1)) == 1


class TestRefusals:
    def test_an_empty_id(self, core: FakeCore) -> None:
        nobody = ProducerIdentity(1, 0)
        for action in (
            lambda: core.transactions.initialize("", timeout_ms=1),
            lambda: core.transactions.add_partitions("", nobody, [P0], client_version=V1),
            lambda: core.transactions.end("", nobody, commit=True, client_version=V1),
            lambda: core.transactions.missing(None, nobody, [P0]),
        ):
            assert code_of(action) is ErrorCode.INVALID_REQUEST

    def test_an_id_that_nobody_initialized(self, core: FakeCore) -> None:
        nobody = ProducerIdentity(1, 0)
        assert code_of(lambda: add(core, nobody, P0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert code_of(lambda: end(core, nobody)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING

    @pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
    def test_a_timeout_that_is_not_allowed(self, core: FakeCore, timeout_ms: int) -> None:
        code = code_of(lambda: core.transactions.initialize("t", timeout_ms=timeout_ms))
        assert code is ErrorCode.INVALID_TRANSACTION_TIMEOUT

    def test_the_longest_timeout_is_allowed(self, core: FakeCore) -> None:
        assert core.transactions.initialize("t", timeout_ms=900_000).is_done

    def test_a_refused_write_changes_nothing(self, core: FakeCore) -> None:
        core.refuse()
        assert code_of(lambda: initialize(core)) is ErrorCode.NOT_COORDINATOR
        assert core.transactions.describe("t") is None
        producer = initialize(core)
        core.refuse()
        assert code_of(lambda: add(core, producer, P0)) is ErrorCode.NOT_COORDINATOR
        assert state(core).state is TransactionState.EMPTY
        add(core, producer, P0)
        core.refuse()
        assert code_of(lambda: end(core, producer)) is ErrorCode.NOT_COORDINATOR
        assert state(core).state is TransactionState.ONGOING
        assert end(core, producer).is_done


class TestDisksThatRefuse:
    def test_a_refused_marker_is_written_later_and_the_client_is_told_of_its_decision(
        self, core: FakeCore
    ) -> None:
        producer = initialize(core)
        add(core, producer, P0, P1)
        core.refuse(None, None, times=2)  # the decision and the first marker pass
        answer = end(core, producer)
        assert answer.is_done, "the decision is durable: nothing can change it any more"
        assert state(core).partitions == {P1}
        core.advance(RETRY_MS)
        assert core.markers(*P1) == []
        core.advance(RETRY_MS)
        assert len(core.markers(*P0)) == len(core.markers(*P1)) == 1
        assert state(core).state is TransactionState.COMPLETE_COMMIT

    def test_a_partition_that_refuses_its_marker_does_not_keep_the_others_from_theirs(
        self, core: FakeCore
    ) -> None:
        producer = initialize(core)
        add(core, producer, P0, P1)
        core.refuse(
            None
        )  # the decision passes, the first marker does not: its partition may be damaged for good
        assert end(core, producer).is_done
        assert core.markers(*P0) == []
        assert [marker.commit for marker in core.markers(*P1)] == [True]
        assert state(core).partitions == {P0}
        core.advance(RETRY_MS)
        assert len(core.markers(*P0)) == len(core.markers(*P1)) == 1
        assert state(core).state is TransactionState.COMPLETE_COMMIT

    def test_a_damaged_partition_is_asked_ever_more_rarely_and_complained_of_once(
        self, core: FakeCore, caplog: pytest.LogCaptureFixture
    ) -> None:
        producer = initialize(core)
        add(core, producer, P0)
        core.topics.get(P0[0]).partitions[P0[1]].log.damage = "damaged"
        core.refuse(None, times=1000)
        end(core, producer)
        for _ in range(600):
            core.advance(RETRY_MS)
        assert caplog.text.count("its end is delayed") == 1
        assert 1000 - len(core.refused) < 20

    def test_a_refused_completion_is_written_later(self, core: FakeCore) -> None:
        producer = initialize(core)
        add(core, producer, P0)
        core.refuse(None, None)
        end(core, producer)
        assert state(core).state is TransactionState.PREPARE_COMMIT
        core.advance(RETRY_MS)
        assert state(core).state is TransactionState.COMPLETE_COMMIT
        assert len(core.markers(*P0)) == 1

    def test_a_refused_timeout_is_tried_again(self, core: FakeCore) -> None:
        producer = initialize(core)
        add(core, producer, P0)
        core.refuse()
        core.advance(TIMEOUT_MS)
        assert state(core).state is TransactionState.ONGOING
        core.advance(RETRY_MS)
        assert state(core).state is TransactionState.COMPLETE_ABORT

    def test_refused_tombstones_wait_for_the_next_sweep(self, core: FakeCore) -> None:
        initialize(core)
        core.settings.values["transactional.id.expiration.ms"] = 1
        core.refuse()
        core.advance(3_600_000)
        assert state(core).state is TransactionState.EMPTY
        core.advance(3_600_000)
        assert core.transactions.describe("t") is None


class TestTakingOver:
    def test_a_new_producer_fences_the_old_one_and_aborts_its_transaction(self, core: FakeCore) -> None:
        old = initialize(core)
        add(core, old, P0)
        assert core.transactions.initialize("t", timeout_ms=TIMEOUT_MS).value is None, "ask again"
        assert [marker.commit for marker in core.markers(*P0)] == [False]
        new = initialize(core)
        assert new == (old.producer_id, old.producer_epoch + 2)
        assert code_of(lambda: add(core, old, P0)) is ErrorCode.PRODUCER_FENCED
        assert code_of(lambda: end(core, old)) is ErrorCode.PRODUCER_FENCED

    def test_a_recovering_producer_keeps_its_place(self, core: FakeCore) -> None:
        producer = initialize(core)
        add(core, producer, P0)
        assert core.transactions.initialize("t", timeout_ms=TIMEOUT_MS, expected=producer).value is None
        again = initialize(core, expected=producer)
        assert again.producer_id == producer.producer_id
        assert again.producer_epoch > producer.producer_epoch


class TestDeadlines:
    def test_an_open_transaction_is_aborted_when_its_time_is_up(self, core: FakeCore) -> None:
        producer = initialize(core)
        add(core, producer, P0)
        core.advance(TIMEOUT_MS - 1)
        assert state(core).state is TransactionState.ONGOING
        core.advance(1)
        assert state(core).state is TransactionState.COMPLETE_ABORT
        assert core.markers(*P0) == [Marker(producer.producer_id, producer.producer_epoch + 1, False, 0)]

    def test_the_time_counts_from_the_first_partition(self, core: FakeCore) -> None:
        producer = initialize(core)
        core.advance(TIMEOUT_MS)
        add(core, producer, P0)
        core.advance(TIMEOUT_MS - 1)
        add(core, producer, P1)
        assert state(core).state is TransactionState.ONGOING
        core.advance(1)
        assert state(core).state is TransactionState.COMPLETE_ABORT

    def test_a_late_commit_of_an_old_client_is_fenced(self, core: FakeCore) -> None:
        producer = initialize(core)
        add(core, producer, P0, version=V1)
        core.advance(TIMEOUT_MS)
        assert code_of(lambda: end(core, producer, version=V1)) is ErrorCode.PRODUCER_FENCED

    def test_a_late_commit_of_a_new_client_is_refused_and_its_abort_accepted(self, core: FakeCore) -> None:
        producer = initialize(core)
        add(core, producer, P0)
        core.advance(TIMEOUT_MS)
        assert code_of(lambda: end(core, producer)) is ErrorCode.INVALID_TXN_STATE
        following = end(core, producer, commit=False).value
        assert following == (producer.producer_id, producer.producer_epoch + 1)
        assert add(core, following, P0).is_done

    def test_an_ended_transaction_has_no_deadline(self, core: FakeCore) -> None:
        producer = initialize(core)
        add(core, producer, P0)
        following = end(core, producer).value
        core.advance(TIMEOUT_MS)
        assert state(core).state is TransactionState.COMPLETE_COMMIT
        add(core, following, P0)
        core.advance(TIMEOUT_MS - 1)
        assert state(core).state is TransactionState.ONGOING, "each transaction has its own time"

    def test_the_deadline_survives_a_restart(self, core: FakeCore) -> None:
        producer = initialize(core)
        add(core, producer, P0)
        core.advance(TIMEOUT_MS - 10)
        after = core.crash()
        after.transactions.load()
        assert state(after).state is TransactionState.ONGOING
        after.advance(10)
        assert state(after).state is TransactionState.COMPLETE_ABORT

    def test_a_wall_clock_set_back_never_lengthens_the_wait(self, core: FakeCore) -> None:
        producer = initialize(core)
        add(core, producer, P0)
        after = core.crash()
        after.clock.elapsed_ms -= 10 * TIMEOUT_MS
        after.transactions.load()
        after.advance(TIMEOUT_MS)
        assert state(after).state is TransactionState.COMPLETE_ABORT

    def test_an_id_that_nobody_uses_is_forgotten(self, core: FakeCore) -> None:
        initialize(core)
        core.settings.values["transactional.id.expiration.ms"] = 2 * 3_600_000
        core.advance(3_600_000)
        assert state(core).state is TransactionState.EMPTY
        core.advance(3_600_000)
        assert core.transactions.describe("t") is None
        after = core.crash()
        after.transactions.load()
        assert list(after.transactions) == []

    def test_many_ids_expire_in_batches(self, core: FakeCore) -> None:
        for number in range(1500):
            core.transactions.initialize(f"t{number}", timeout_ms=1)
        core.settings.values["transactional.id.expiration.ms"] = 1
        before = core.appends
        core.advance(3_600_000)
        left = len(list(core.transactions))
        assert 1500 - 2 * TOMBSTONES_MAX < left <= 1500 - TOMBSTONES_MAX
        while core.slices.is_pending:
            core.slices.step()
        assert list(core.transactions) == []
        assert core.appends - before <= 50

    def test_an_id_that_is_used_again_between_two_turns_of_a_sweep_stays(self, core: FakeCore) -> None:
        for number in range(3 * TOMBSTONES_MAX):
            core.transactions.initialize(f"t{number}", timeout_ms=1)
        core.settings.values["transactional.id.expiration.ms"] = 1
        core.advance(3_600_000)
        used = next(iter(core.transactions)).transactional_id
        producer = core.transactions.initialize(used, timeout_ms=1).value
        while core.slices.is_pending:
            core.slices.step()
        assert producer is not None
        assert [each.transactional_id for each in core.transactions] == [used]


class TestProduce:
    def check(
        self, core: FakeCore, producer: ProducerIdentity, *places: tuple[str, int], may_add: bool
    ) -> Later[None]:
        return core.transactions.verify_or_add("t", *producer, places, may_add=may_add)

    def test_a_new_client_adds_partitions_by_writing_to_them(self, core: FakeCore) -> None:
        producer = initialize(core)
        self.check(core, producer, P0, may_add=True)
        self.check(core, producer, P1, may_add=True)
        assert state(core).partitions == {P0, P1}

    def test_writing_again_costs_no_record(self, core: FakeCore) -> None:
        producer = initialize(core)
        self.check(core, producer, P0, may_add=True)
        before = core.appends
        self.check(core, producer, P0, may_add=True)
        assert core.appends == before

    def test_an_old_client_must_have_added_them(self, core: FakeCore) -> None:
        producer = initialize(core)
        code = code_of(lambda: self.check(core, producer, P0, may_add=False))
        assert code is ErrorCode.TRANSACTION_ABORTABLE
        add(core, producer, P0, version=V1)
        assert self.check(core, producer, P0, may_add=False).is_done

    def test_the_oldest_clients_hear_of_an_invalid_state_instead(self, core: FakeCore) -> None:
        producer = initialize(core)
        code = code_of(
            lambda: core.transactions.verify_or_add(
                "t", *producer, [P0], may_add=False, knows_abortable=False
            )
        )
        assert code is ErrorCode.INVALID_TXN_STATE

    def test_verification_can_be_switched_off(self, core: FakeCore) -> None:
        producer = initialize(core)
        core.settings.values["transaction.partition.verification.enable"] = False
        assert self.check(core, producer, P0, may_add=False).is_done

    @pytest.mark.parametrize("may_add", [True, False])
    def test_a_fenced_producer_hears_of_its_epoch(self, core: FakeCore, may_add: bool) -> None:
        old = initialize(core)
        initialize(core)
        code = code_of(lambda: self.check(core, old, P0, may_add=may_add))
        assert code is ErrorCode.INVALID_PRODUCER_EPOCH

    @pytest.mark.parametrize("may_add", [True, False])
    def test_a_foreign_producer_id_is_refused(self, core: FakeCore, may_add: bool) -> None:
        initialize(core)
        code = code_of(lambda: self.check(core, ProducerIdentity(12345, 0), P0, may_add=may_add))
        assert code is ErrorCode.INVALID_PRODUCER_ID_MAPPING

    def test_while_the_last_transaction_ends_clients_are_told_to_come_back(self, core: FakeCore) -> None:
        producer = initialize(core)
        add(core, producer, P0, version=V1)
        core.hold()
        end(core, producer, version=V1)
        assert code_of(lambda: self.check(core, producer, P0, may_add=False)) is ErrorCode.NOT_ENOUGH_REPLICAS
        assert (
            code_of(lambda: self.check(core, producer, P0, may_add=True)) is ErrorCode.CONCURRENT_TRANSACTIONS
        )


class TestRestart:
    def snapshot(self, core: FakeCore) -> list[TransactionMetadata]:
        """All but the last epoch, which Kafka does not journal either."""
        return [replace(each, last_producer_epoch=-1) for each in core.transactions]

    def test_what_was_journalled_is_what_was_kept(self, core: FakeCore) -> None:
        producer = initialize(core)
        add(core, producer, P0)
        producer = end(core, producer).value
        add(core, producer, P0, P1)
        initialize(core, "u")
        core.transactions.end(
            "u", ProducerIdentity(state(core, "u").producer_id, 0), commit=False, client_version=V2
        )
        after = core.crash()
        after.transactions.load()
        assert sorted(self.snapshot(after), key=repr) == sorted(self.snapshot(core), key=repr)

    def test_nothing_to_load_makes_no_topic(self) -> None:
        core = FakeCore()
        core.transactions.load()
        assert core.topics.get("__transaction_state") is None

    @pytest.mark.parametrize("commit", [True, False])
    def test_a_decision_is_seen_through_after_a_crash(self, core: FakeCore, commit: bool) -> None:
        producer = initialize(core)
        add(core, producer, P0, P1)
        core.hold()
        end(core, producer, commit=commit)
        core.sync()  # the decision is durable, the markers are not
        after = core.crash()
        assert after.markers(*P0) == []
        after.transactions.load()
        assert [marker.commit for marker in after.markers(*P0) + after.markers(*P1)] == [commit, commit]
        assert state(after).state is (
            TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        )
        assert end(after, producer, commit=commit).value == (producer.producer_id, 1)

    def test_after_a_crash_the_markers_wait_until_the_decision_is_known_to_be_durable(
        self, core: FakeCore
    ) -> None:
        """A killed process leaves it in the page cache; a power cut would take it there, and not the markers."""
        producer = initialize(core)
        add(core, producer, P0)
        core.hold()
        end(core, producer)
        core.sync()
        after = core.crash()
        after.hold()
        after.transactions.load()
        assert after.markers(*P0) == []
        after.sync()
        assert len(after.markers(*P0)) == 1

    def test_a_decision_that_was_not_durable_never_was(self, core: FakeCore) -> None:
        producer = initialize(core)
        add(core, producer, P0)
        core.hold()
        end(core, producer)
        after = core.crash()
        after.transactions.load()
        assert state(after).state is TransactionState.ONGOING
        assert after.markers(*P0) == []
        assert end(after, producer, commit=False).is_done, "the producer may still choose otherwise"

    def test_markers_carry_the_epoch_of_the_journals_leader(self, core: FakeCore) -> None:
        producer = initialize(core)
        after = core.crash()
        after.transactions.load()
        add(after, producer, P0)
        end(after, producer)
        assert after.markers(*P0)[0].coordinator_epoch == 1

    def test_records_from_the_future_are_skipped(
        self, core: FakeCore, caplog: pytest.LogCaptureFixture
    ) -> None:
        producer = initialize(core)
        core.append_internal("__transaction_state", 0, [(b"\0\7what", b"?"), (b"\0\0\0\1x", b"\0\x09")])
        after = core.crash()
        after.transactions.load()
        assert state(after).producer_id == producer.producer_id
        assert caplog.text.count("skipped") == 2

    def test_producer_ids_are_not_repeated(self, core: FakeCore) -> None:
        before = initialize(core), core.transactions.new_producer()
        after = core.crash()
        after.transactions.load()
        assert after.transactions.new_producer().producer_id > max(each.producer_id for each in before)


def scenario(core: FakeCore, told: list[bool]) -> None:
    """Three transactions over two partitions; `told` is how each ended, as far as the client was answered."""
    producer = settled(core, core.transactions.initialize("t", timeout_ms=TIMEOUT_MS))
    assert producer is not None
    for commit in (True, False, True):
        for place in (P0, P1):
            joined = core.transactions.verify_or_add("t", *producer, [place], may_add=True)
            core.write(producer, *place)
            settled(core, joined)
        producer = settled(core, end(core, producer, commit=commit))
        told.append(commit)


T = TypeVar("T")


def settled(core: FakeCore, answer: Later[T]) -> T:
    while not answer.is_done:
        core.sync()
    return answer.value


@pytest.mark.parametrize("is_data_kept", [True, False], ids=["data on disk", "data lost too"])
@pytest.mark.parametrize("what", ["appends_max", "syncs_max"])
def test_wherever_the_power_fails_all_partitions_tell_the_same_story(what: str, is_data_kept: bool) -> None:
    for limit in itertools.count(1):
        core = FakeCore()
        core.topics.create("orders", 2)
        core.transactions.load()
        core.hold()
        setattr(core, what, limit)
        told: list[bool] = []
        try:
            scenario(core, told)
        except PowerLost:
            pass
        else:
            assert limit > 12
            return
        after = core.crash(keep_data=is_data_kept)
        after.transactions.load()
        after.advance(TIMEOUT_MS)  # whoever does not come back is aborted
        outcomes = [outcomes_of(after, place) for place in (P0, P1)]
        shared = min(map(len, outcomes))
        assert outcomes[0][:shared] == outcomes[1][:shared]
        assert told == outcomes[0][: len(told)] == outcomes[1][: len(told)]
        for place in (P0, P1):
            log = after.topics.require(*place).log
            assert log.stable_offset == log.end_offset, "no transaction is left open"


def outcomes_of(core: FakeCore, place: tuple[str, int]) -> list[bool]:
    """How each piece of data ended: by the first marker after it."""
    outcomes: list[bool] = []
    is_open = False
    for entry in core.topics.require(*place).log.entries:
        if isinstance(entry, Marker) and is_open:
            outcomes.append(entry.commit)
        is_open = not isinstance(entry, Marker)
    return outcomes
