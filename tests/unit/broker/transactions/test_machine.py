"""The rules of one transactional id: epochs, fencing, retries, both kinds of clients, every illegal step.

Facts are Apache Kafka 4.3's: KIP-98 (transactions), KIP-360 (recovering producers), KIP-890 (an epoch for every end).
"""

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from headrace.broker.transactions import machine
from headrace.broker.transactions.machine import EPOCH_LAST, EPOCH_MAX, IllegalTransition, TransactionMetadata
from headrace.broker.transactions.states import (
    AT_REST,
    PREPARED,
    TRANSITIONS,
    TransactionCause,
    TransactionState,
)
from headrace.wire.errors import ErrorCode, KafkaError

NEW_ID = 900
P0, P1 = ("orders", 0), ("orders", 1)
V1, V2 = 0, 2


def draw() -> int:
    return NEW_ID


def never() -> int:
    raise AssertionError("no producer id is needed here")


def transaction(state: TransactionState = TransactionState.EMPTY, **changes: object) -> TransactionMetadata:
    start_ms = -1 if state is TransactionState.EMPTY else 50
    base = TransactionMetadata(
        transactional_id="t",
        producer_id=7,
        producer_epoch=5,
        timeout_ms=1000,
        state=state,
        update_ms=100,
        start_ms=start_ms,
        partitions=frozenset({P0}) if state in {TransactionState.ONGOING, *PREPARED} else frozenset(),
    )
    return replace(base, **changes)  # type: ignore[arg-type]


def initialized(
    before: TransactionMetadata, expected: tuple[int, int] | None = None, draw_id: Callable[[], int] = never
) -> TransactionMetadata:
    return machine.initialize(before, expected, timeout_ms=1000, now_ms=200, draw_producer_id=draw_id)


def ended(
    before: TransactionMetadata,
    epoch: int = 5,
    *,
    commit: bool = True,
    version: int = V2,
    producer_id: int = 7,
    draw_id: Callable[[], int] = never,
) -> TransactionMetadata:
    return machine.end(
        before,
        producer_id,
        epoch,
        commit=commit,
        client_version=version,
        now_ms=200,
        draw_producer_id=draw_id,
    )


def refusal(action: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        action()
    return caught.value.code


class TestInitialize:
    def test_a_new_id_begins_at_epoch_zero(self) -> None:
        new = machine.created("t", 7, timeout_ms=1000, now_ms=0)
        assert new.producer_epoch == -1
        first = initialized(new)
        assert (first.producer_id, first.producer_epoch, first.state) == (7, 0, TransactionState.EMPTY)

    @pytest.mark.parametrize("state", sorted(AT_REST))
    def test_a_new_producer_gets_the_next_epoch(self, state: TransactionState) -> None:
        after = initialized(transaction(state))
        assert (after.producer_id, after.producer_epoch, after.last_producer_epoch) == (7, 6, -1)
        assert (after.state, after.start_ms, after.partitions) == (TransactionState.EMPTY, -1, frozenset())

    def test_the_new_timeout_counts(self) -> None:
        after = machine.initialize(transaction(), None, timeout_ms=77, now_ms=200, draw_producer_id=never)
        assert after.timeout_ms == 77

    @pytest.mark.parametrize("state", sorted(PREPARED))
    def test_while_the_last_transaction_ends_it_has_to_wait(self, state: TransactionState) -> None:
        assert refusal(lambda: initialized(transaction(state))) is ErrorCode.CONCURRENT_TRANSACTIONS

    def test_an_open_transaction_is_aborted_and_its_producer_fenced(self) -> None:
        after = initialized(transaction(TransactionState.ONGOING))
        assert (after.state, after.producer_epoch, after.partitions) == (
            TransactionState.PREPARE_ABORT,
            6,
            frozenset({P0}),
        )

    def test_a_recovering_producer_gets_the_next_epoch_and_may_ask_twice(self) -> None:
        once = initialized(transaction(), (7, 5))
        assert (once.producer_epoch, once.last_producer_epoch) == (6, 5)
        twice = initialized(once, (7, 5))
        assert (twice.producer_id, twice.producer_epoch) == (7, 6)

    def test_a_recovering_producer_is_fenced_when_another_came(self) -> None:
        taken_over = initialized(transaction())
        assert refusal(lambda: initialized(taken_over, (7, 5))) is ErrorCode.PRODUCER_FENCED

    def test_a_recovering_producer_with_a_foreign_id_is_fenced(self) -> None:
        assert refusal(lambda: initialized(transaction(), (8, 5))) is ErrorCode.PRODUCER_FENCED

    def test_a_recovering_producer_whose_id_expired_starts_anew(self) -> None:
        new = machine.created("t", 30, timeout_ms=1000, now_ms=0)
        after = initialized(new, (7, 5))
        assert (after.producer_id, after.producer_epoch) == (30, 0)

    def test_used_up_epochs_bring_a_new_producer_id(self) -> None:
        after = initialized(transaction(producer_epoch=EPOCH_LAST), draw_id=draw)
        assert (after.producer_id, after.producer_epoch, after.previous_producer_id) == (NEW_ID, 0, 7)

    def test_a_retry_across_the_new_producer_id_gets_it_again(self) -> None:
        after = initialized(transaction(producer_epoch=EPOCH_LAST), (7, EPOCH_LAST), draw_id=draw)
        again = initialized(after, (7, EPOCH_LAST))
        assert (again.producer_id, again.producer_epoch) == (NEW_ID, 0)

    def test_a_fence_at_the_last_epoch_leaves_one_that_no_client_gets(self) -> None:
        fenced = initialized(transaction(TransactionState.ONGOING, producer_epoch=EPOCH_LAST))
        assert fenced.producer_epoch == EPOCH_MAX
        after = initialized(machine.complete(fenced, now_ms=300), draw_id=draw)
        assert (after.producer_id, after.producer_epoch) == (NEW_ID, 0)

    def test_a_stale_epoch_is_fenced_even_when_epochs_are_used_up(self) -> None:
        used_up = transaction(producer_epoch=EPOCH_LAST)
        assert refusal(lambda: initialized(used_up, (7, 3))) is ErrorCode.PRODUCER_FENCED


class TestAdd:
    def add(
        self, before: TransactionMetadata, *places: tuple[str, int], epoch: int = 5, producer_id: int = 7
    ) -> TransactionMetadata:
        return machine.add(before, producer_id, epoch, places, client_version=V2, now_ms=200)

    @pytest.mark.parametrize("state", sorted(AT_REST))
    def test_the_first_partition_begins_the_transaction(self, state: TransactionState) -> None:
        after = self.add(transaction(state), P0)
        assert (after.state, after.partitions, after.start_ms) == (TransactionState.ONGOING, {P0}, 200)

    def test_more_partitions_keep_the_start(self) -> None:
        after = self.add(transaction(TransactionState.ONGOING), P1)
        assert (after.partitions, after.start_ms, after.update_ms) == ({P0, P1}, 50, 200)

    def test_partitions_that_are_in_it_change_nothing(self) -> None:
        before = transaction(TransactionState.ONGOING)
        assert self.add(before, P0) is before

    @pytest.mark.parametrize("state", sorted(PREPARED))
    def test_not_while_it_ends_whatever_the_producer(self, state: TransactionState) -> None:
        assert (
            refusal(lambda: self.add(transaction(state), P0, epoch=99)) is ErrorCode.CONCURRENT_TRANSACTIONS
        )

    def test_a_foreign_producer_id_is_refused(self) -> None:
        assert (
            refusal(lambda: self.add(transaction(), P0, producer_id=8))
            is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        )

    @pytest.mark.parametrize("epoch", [4, 6])
    def test_another_epoch_is_fenced(self, epoch: int) -> None:
        assert refusal(lambda: self.add(transaction(), P0, epoch=epoch)) is ErrorCode.PRODUCER_FENCED


class TestMissing:
    def test_names_the_partitions_that_were_not_added(self) -> None:
        assert machine.missing(transaction(TransactionState.ONGOING), 7, 5, [P0, P1]) == [P1]

    @pytest.mark.parametrize("state", sorted(AT_REST))
    def test_without_a_transaction_all_are_missing(self, state: TransactionState) -> None:
        assert machine.missing(transaction(state), 7, 5, [P0]) == [P0]

    @pytest.mark.parametrize(
        ("state", "producer", "code"),
        [
            (TransactionState.ONGOING, (8, 5), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
            (TransactionState.ONGOING, (7, 4), ErrorCode.PRODUCER_FENCED),
            (TransactionState.PREPARE_COMMIT, (7, 5), ErrorCode.CONCURRENT_TRANSACTIONS),
        ],
    )
    def test_refuses_whoever_may_not_ask(
        self, state: TransactionState, producer: tuple[int, int], code: ErrorCode
    ) -> None:
        assert refusal(lambda: machine.missing(transaction(state), *producer, [P0])) is code


class TestEndOfOldClients:
    @pytest.mark.parametrize("commit", [True, False])
    def test_the_epoch_stays(self, commit: bool) -> None:
        prepared = ended(transaction(TransactionState.ONGOING), commit=commit, version=V1)
        assert prepared.state is (
            TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        )
        assert prepared.partitions == {P0}
        completed = machine.complete(prepared, now_ms=300)
        assert (completed.producer_id, completed.producer_epoch, completed.partitions) == (7, 5, frozenset())

    @pytest.mark.parametrize("commit", [True, False])
    def test_a_retry_after_the_end_is_answered_like_the_first(self, commit: bool) -> None:
        done = transaction(TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
        assert ended(done, commit=commit, version=V1) is done

    @pytest.mark.parametrize(
        ("state", "commit"),
        [
            (TransactionState.EMPTY, True),
            (TransactionState.EMPTY, False),
            (TransactionState.COMPLETE_COMMIT, False),
            (TransactionState.COMPLETE_ABORT, True),
        ],
    )
    def test_an_end_that_contradicts_the_state_is_refused(
        self, state: TransactionState, commit: bool
    ) -> None:
        assert (
            refusal(lambda: ended(transaction(state), commit=commit, version=V1))
            is ErrorCode.INVALID_TXN_STATE
        )

    @pytest.mark.parametrize("commit", [True, False])
    @pytest.mark.parametrize("state", sorted(PREPARED))
    def test_while_it_ends_it_has_to_wait(self, state: TransactionState, commit: bool) -> None:
        code = refusal(lambda: ended(transaction(state), commit=commit, version=V1))
        assert code is ErrorCode.CONCURRENT_TRANSACTIONS

    def test_another_epoch_is_fenced_before_anything_else(self) -> None:
        for state in (*AT_REST, *PREPARED, TransactionState.ONGOING):
            assert refusal(lambda s=state: ended(transaction(s), 4, version=V1)) is ErrorCode.PRODUCER_FENCED

    def test_a_foreign_producer_id_is_refused(self) -> None:
        code = refusal(lambda: ended(transaction(TransactionState.ONGOING), version=V1, producer_id=8))
        assert code is ErrorCode.INVALID_PRODUCER_ID_MAPPING

    def test_the_last_epoch_needs_no_new_producer_id(self) -> None:
        prepared = ended(
            transaction(TransactionState.ONGOING, producer_epoch=EPOCH_LAST), EPOCH_LAST, version=V1
        )
        assert (prepared.producer_epoch, prepared.next_producer_id) == (EPOCH_LAST, -1)


PF, ITS = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE


class TestEndOfNewClients:
    @pytest.mark.parametrize("commit", [True, False])
    def test_every_end_moves_the_epoch(self, commit: bool) -> None:
        prepared = ended(transaction(TransactionState.ONGOING), commit=commit)
        assert (prepared.producer_epoch, prepared.last_producer_epoch) == (6, 5)
        completed = machine.complete(prepared, now_ms=300)
        assert (completed.producer_id, completed.producer_epoch) == (7, 6)

    @pytest.mark.parametrize(
        ("state", "commit", "epoch", "outcome"),
        [
            # KIP-890's table: epoch 4 is the retry of the end that made it 5.
            (TransactionState.EMPTY, False, 4, PF),
            (TransactionState.EMPTY, False, 5, "moves"),
            (TransactionState.EMPTY, True, 4, PF),
            (TransactionState.EMPTY, True, 5, ITS),
            (TransactionState.COMPLETE_ABORT, False, 4, "same"),
            (TransactionState.COMPLETE_ABORT, False, 5, "moves"),
            (TransactionState.COMPLETE_ABORT, True, 4, ITS),
            (TransactionState.COMPLETE_ABORT, True, 5, ITS),
            (TransactionState.COMPLETE_COMMIT, False, 4, ITS),
            (TransactionState.COMPLETE_COMMIT, False, 5, "moves"),
            (TransactionState.COMPLETE_COMMIT, True, 4, "same"),
            (TransactionState.COMPLETE_COMMIT, True, 5, ITS),
            (TransactionState.COMPLETE_COMMIT, True, 3, PF),
            (TransactionState.COMPLETE_COMMIT, True, 6, PF),
            (TransactionState.ONGOING, True, 4, PF),
            (TransactionState.ONGOING, False, 6, PF),
        ],
    )
    def test_an_end_at_rest(self, state: TransactionState, commit: bool, epoch: int, outcome: object) -> None:
        before = transaction(state)
        if isinstance(outcome, ErrorCode):
            assert refusal(lambda: ended(before, epoch, commit=commit)) is outcome
            return
        after = ended(before, epoch, commit=commit)
        if outcome == "same":
            assert after is before
        else:
            assert (after.state, after.producer_epoch, after.start_ms) == (
                TransactionState.PREPARE_ABORT,
                6,
                200,
            )

    @pytest.mark.parametrize("commit", [True, False])
    @pytest.mark.parametrize("state", sorted(PREPARED))
    def test_while_it_ends_it_has_to_wait_whatever_the_epoch(
        self, state: TransactionState, commit: bool
    ) -> None:
        for epoch in (3, 4, 5, 6):
            code = refusal(lambda e=epoch: ended(transaction(state), e, commit=commit))
            assert code is ErrorCode.CONCURRENT_TRANSACTIONS

    def test_a_foreign_producer_id_is_refused(self) -> None:
        code = refusal(lambda: ended(transaction(TransactionState.ONGOING), producer_id=8))
        assert code is ErrorCode.INVALID_PRODUCER_ID_MAPPING

    def test_the_last_epoch_brings_a_new_producer_id_with_the_completion(self) -> None:
        prepared = ended(
            transaction(TransactionState.ONGOING, producer_epoch=EPOCH_LAST), EPOCH_LAST, draw_id=draw
        )
        assert (prepared.producer_id, prepared.producer_epoch) == (7, EPOCH_MAX)
        assert prepared.next_producer_id == NEW_ID
        completed = machine.complete(prepared, now_ms=300)
        assert (completed.producer_id, completed.producer_epoch) == (NEW_ID, 0)
        assert (completed.previous_producer_id, completed.next_producer_id) == (7, -1)

    def test_a_retry_across_the_new_producer_id_is_answered_like_the_first(self) -> None:
        prepared = ended(
            transaction(TransactionState.ONGOING, producer_epoch=EPOCH_LAST), EPOCH_LAST, draw_id=draw
        )
        completed = machine.complete(prepared, now_ms=300)
        assert ended(completed, EPOCH_LAST) is completed

    def test_the_old_producer_id_is_gone_once_the_new_one_worked(self) -> None:
        prepared = ended(
            transaction(TransactionState.ONGOING, producer_epoch=EPOCH_LAST), EPOCH_LAST, draw_id=draw
        )
        completed = machine.complete(prepared, now_ms=300)
        ongoing = machine.add(completed, NEW_ID, 0, [P0], client_version=V2, now_ms=400)
        assert refusal(lambda: ended(ongoing, EPOCH_LAST)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


class TestFenceAndExpiry:
    def test_a_fence_moves_the_epoch_whatever_the_client(self) -> None:
        fenced = machine.fence(transaction(TransactionState.ONGOING, client_version=V1), now_ms=200)
        assert (fenced.state, fenced.producer_epoch) == (TransactionState.PREPARE_ABORT, 6)
        assert (fenced.client_version, fenced.start_ms) == (V2, 50)

    def test_a_fence_never_overflows_the_epoch(self) -> None:
        fenced = machine.fence(transaction(TransactionState.ONGOING, producer_epoch=EPOCH_MAX), now_ms=200)
        assert fenced.producer_epoch == EPOCH_MAX

    def test_a_timed_out_producer_may_abort_but_not_commit(self) -> None:
        done = machine.complete(machine.fence(transaction(TransactionState.ONGOING), now_ms=200), now_ms=300)
        assert ended(done, 5, commit=False) is done
        assert refusal(lambda: ended(done, 5, commit=True)) is ErrorCode.INVALID_TXN_STATE

    def test_an_id_expires_when_it_was_not_used_for_long_enough(self) -> None:
        assert machine.is_expired(transaction(), expiration_ms=100, now_ms=200)
        assert not machine.is_expired(transaction(), expiration_ms=101, now_ms=200)
        assert machine.expire(transaction(), now_ms=200).state is TransactionState.DEAD

    @pytest.mark.parametrize("state", [TransactionState.ONGOING, *sorted(PREPARED)])
    def test_an_id_in_use_never_expires(self, state: TransactionState) -> None:
        assert not machine.is_expired(transaction(state), expiration_ms=1, now_ms=10**12)


STEPS: dict[TransactionCause, Callable[[TransactionMetadata], TransactionMetadata]] = {
    TransactionCause.FENCE: lambda before: machine.fence(before, now_ms=200),
    TransactionCause.COMPLETE: lambda before: machine.complete(before, now_ms=200),
    TransactionCause.EXPIRE: lambda before: machine.expire(before, now_ms=200),
}


@pytest.mark.parametrize(
    ("state", "cause"),
    [pair for pair in itertools.product(TransactionState, STEPS) if pair not in TRANSITIONS],
    ids=lambda value: value.name,
)
def test_a_step_that_the_table_does_not_name_is_a_fault_of_ours(
    state: TransactionState, cause: TransactionCause
) -> None:
    with pytest.raises(IllegalTransition, match=cause.name):
        STEPS[cause](transaction(state))


@pytest.mark.parametrize("state", [TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE])
def test_no_request_moves_a_dead_transaction(state: TransactionState) -> None:
    with pytest.raises(IllegalTransition):
        initialized(transaction(state))
    with pytest.raises(IllegalTransition):
        machine.add(transaction(state), 7, 5, [P0], client_version=V2, now_ms=200)
    for version, commit in itertools.product((V1, V2), (True, False)):
        code = refusal(lambda v=version, c=commit: ended(transaction(state), commit=c, version=v))
        assert code is ErrorCode.INVALID_TXN_STATE


def test_rules_never_change_the_value_they_are_given() -> None:
    before = transaction(TransactionState.ONGOING)
    copy = replace(before)
    initialized(before)
    ended(before)
    machine.add(before, 7, 5, [P1], client_version=V2, now_ms=200)
    machine.fence(before, now_ms=200)
    assert before == copy
