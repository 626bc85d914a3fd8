"""The settle rules one by one; tests/property/test_spark_settle.py plays them in any order."""

from headrace.client.delivery import AcknowledgeType
from headrace.spark.dividing import Division
from headrace.spark.offset import Accepted, AcquiredOffset
from headrace.spark.runs import Run, RunSet
from headrace.spark.settle import Acknowledge, BatchLimits, Ledger, OwnLog
from headrace.wire.ids import TopicAndPartition

PLACE: TopicAndPartition = ("orders", 0)
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


def runs(*entries: tuple[int, ...]) -> RunSet:
    return RunSet.of((PLACE, Run(*entry)) for entry in entries)


def planned(mode: Acknowledge = Acknowledge.COMMIT) -> Ledger:
    """Records 0 to 9 are in the micro-batch that runs."""
    ledger = Ledger(mode)
    assert not ledger.acquired(runs((0, 9, 1)))
    assert ledger.plan(BatchLimits()) == runs((0, 9, 1))
    return ledger


def test_nothing_is_acknowledged_before_the_commit() -> None:
    assert not planned().hand_off()


def test_a_committed_micro_batch_is_accepted_and_forgotten_once_confirmed() -> None:
    ledger = planned()
    assert ledger.settle(RunSet()) == runs((0, 9, 1))
    assert ledger.processed == runs((0, 9, 1))
    ledger.confirmed(runs((0, 9, 0)))
    assert not ledger.processed


def test_settling_twice_does_nothing_the_second_time() -> None:
    ledger = planned()
    ledger.settle(RunSet())
    assert not ledger.settle(RunSet())


def test_with_handoff_it_is_accepted_as_soon_as_it_is_logged() -> None:
    ledger = planned(Acknowledge.HANDOFF)
    assert ledger.hand_off() == runs((0, 9, 1))
    assert not ledger.hand_off()
    assert not ledger.settle(RunSet())
    assert ledger.processed == runs((0, 9, 1))


def test_a_lost_lock_is_not_acknowledged_until_the_record_comes_again() -> None:
    ledger = planned()
    ledger.lost(runs((4, 5, 0)))
    assert ledger.settle(RunSet()) == runs((0, 3, 1), (6, 9, 1))
    assert ledger.acquired(runs((4, 5, 2))) == runs((4, 5, 1))
    assert ledger.plan(BatchLimits()) is None


def test_a_record_that_comes_again_while_its_micro_batch_runs_is_settled_with_it() -> None:
    ledger = planned()
    ledger.lost(runs((0, 9, 0)))
    assert not ledger.acquired(runs((0, 9, 2)))
    assert ledger.settle(RunSet()) == runs((0, 9, 1))


def test_outcomes_are_sent_and_a_release_is_not_owed() -> None:
    ledger = planned()
    owed = ledger.settle(runs((2, 2, 1, RELEASE), (3, 4, 1, REJECT)))
    assert owed == runs((0, 1, 1), (2, 2, 1, RELEASE), (3, 4, 1, REJECT), (5, 9, 1))
    assert ledger.processed == runs((0, 1, 1), (3, 4, 1, REJECT), (5, 9, 1))


def test_a_released_record_whose_lock_was_lost_is_new_when_it_comes_again() -> None:
    ledger = planned()
    ledger.lost(runs((2, 2, 0)))
    ledger.settle(runs((2, 2, 1, RELEASE)))
    assert not ledger.acquired(runs((2, 2, 2)))
    assert ledger.plan(BatchLimits()) == runs((2, 2, 2))


def test_a_released_record_that_came_again_meanwhile_is_kept_for_the_next_micro_batch() -> None:
    ledger = planned()
    ledger.lost(runs((2, 2, 0)))
    ledger.acquired(runs((2, 2, 2)))
    assert ledger.settle(runs((2, 2, 1, RELEASE))) == runs((0, 1, 1), (3, 9, 1))
    assert ledger.plan(BatchLimits()) == runs((2, 2, 2))


def test_an_outcome_of_an_older_delivery_does_not_count() -> None:
    ledger = Ledger(Acknowledge.COMMIT)
    ledger.acquired(runs((0, 0, 3)))
    ledger.plan(BatchLimits())
    assert ledger.settle(runs((0, 0, 2, REJECT))) == runs((0, 0, 3))


def test_a_rejected_record_that_comes_again_is_rejected_again() -> None:
    ledger = planned()
    ledger.lost(runs((3, 3, 0)))
    ledger.settle(runs((3, 3, 1, REJECT)))
    assert ledger.acquired(runs((3, 3, 2))) == runs((3, 3, 1, REJECT))


def test_the_journal_forgets_what_the_start_offset_has_passed() -> None:
    ledger = planned()
    ledger.settle(RunSet())
    ledger.passed(PLACE, 4)
    assert ledger.processed == runs((4, 9, 1))
    ledger.passed(("orders", 1), 100)
    ledger.passed(PLACE, -1)
    assert ledger.processed == runs((4, 9, 1))


def test_after_a_restart_the_journal_is_that_of_the_offset() -> None:
    ledger = Ledger(Acknowledge.COMMIT)
    ledger.acquired(runs((0, 20, 2)))
    ledger.recover(AcquiredOffset(5, "g", batch=runs((10, 14, 1)), processed=runs((0, 4, 1))))
    owed = ledger.settle(RunSet())
    assert owed == runs((10, 14, 1))
    assert ledger.plan(BatchLimits()) == runs((5, 9, 2), (15, 20, 2))
    assert ledger.sequence == 6


def test_limits_leave_the_rest_for_the_next_micro_batch() -> None:
    ledger = Ledger(Acknowledge.COMMIT)
    ledger.acquired(runs((0, 9, 1)))
    assert ledger.plan(BatchLimits(records_max=4)) == runs((0, 3, 1))
    ledger.settle(RunSet())
    assert ledger.plan(BatchLimits(records_max=4)) == runs((4, 7, 1))


def test_a_release_counts_though_the_query_comes_back_with_handoff() -> None:
    first = planned()
    offset = AcquiredOffset(first.sequence, "g", batch=first.planned, accepted=first.accepted)
    second = Ledger(Acknowledge.HANDOFF)
    second.recover(offset)
    second.settle(runs((3, 3, 1, RELEASE)))
    assert second.processed == runs((0, 2, 1), (4, 9, 1))
    assert second.acquired(runs((3, 3, 2))) == RunSet()
    assert second.plan(BatchLimits()) == runs((3, 3, 2))


def test_a_micro_batch_that_was_planned_with_commit_is_not_accepted_before_its_commit_with_handoff() -> None:
    first = planned()
    offset = AcquiredOffset(first.sequence, "g", batch=first.planned, accepted=first.accepted)
    second = Ledger(Acknowledge.HANDOFF)
    second.recover(offset)
    second.acquired(runs((0, 9, 2)))
    assert second.hand_off() == RunSet()
    assert second.settle(RunSet()) == runs((0, 9, 1))


# a micro-batch that was divided


def divide(ledger: Ledger, given: RunSet) -> None:
    """Of its micro-batch, only these are run."""
    ledger.division = Division(ledger.sequence, ledger.planned, given)


def divided(mode: Acknowledge = Acknowledge.COMMIT) -> Ledger:
    """Of records 0 to 9, 0 to 2 were run and are settled; the locks are those of an earlier life."""
    ledger = Ledger(mode)
    ledger.recover(AcquiredOffset(1, "g", batch=runs((0, 9, 1))))
    divide(ledger, runs((0, 2, 1)))
    assert not ledger.settle(RunSet())
    return ledger


def test_what_is_left_of_a_divided_micro_batch_comes_next_and_grows_while_it_succeeds() -> None:
    ledger = divided()
    ledger.acquired(runs((20, 29, 1)))
    sizes = []
    while (batch := ledger.plan(BatchLimits())) is not None:
        sizes.append(batch)
        ledger.settle(RunSet())
    assert sizes == [runs((3, 5, 1)), runs((6, 9, 1)), runs((20, 29, 1))]


def test_limits_bound_what_is_left_of_a_divided_micro_batch_too() -> None:
    assert divided().plan(BatchLimits(records_max=2)) == runs((3, 4, 1))


def test_what_is_left_of_a_divided_micro_batch_is_accepted_with_the_lock_that_came_again() -> None:
    ledger = divided()
    assert ledger.acquired(runs((0, 9, 2))) == runs((0, 2, 1)), "what was run is accepted"
    assert ledger.plan(BatchLimits()) == runs((3, 5, 1))
    assert ledger.settle(RunSet()) == runs((3, 5, 1))
    assert ledger.plan(BatchLimits()) == runs((6, 9, 1))


def test_what_is_left_of_a_divided_micro_batch_is_not_accepted_ahead() -> None:
    ledger = divided(Acknowledge.HANDOFF)
    ledger.takes_ahead = True
    ledger.acquired(runs((3, 12, 2)))
    assert ledger.begin_taking(BatchLimits()) == runs((10, 12, 2))


def test_what_is_left_of_a_divided_micro_batch_comes_though_the_topic_of_its_part_is_another_by_now() -> None:
    ledger = Ledger(Acknowledge.COMMIT)
    other = RunSet.of([(("mails", 0), Run(0, 9, 1))])
    ledger.recover(AcquiredOffset(1, "g", batch=runs((0, 9, 1)).replaced_by(other)))
    divide(ledger, runs((0, 9, 1)))
    ledger.forget("orders")
    ledger.settle(RunSet())
    assert ledger.plan(BatchLimits()) == RunSet.of([(("mails", 0), Run(0, 0, 1))])


def test_a_released_record_that_came_again_and_was_accepted_ahead_is_not_taken_for_the_one_in_sparks_log() -> (
    None
):
    """The next life is killed before a micro-batch has it."""
    logged = AcquiredOffset(1, "g", batch=runs((0, 9, 1)))
    before = Ledger(Acknowledge.HANDOFF)
    before.takes_ahead = True
    before.recover(logged)
    before.settle(runs((3, 3, 1, RELEASE)))
    before.acquired(runs((3, 3, 2)))
    taken = before.begin_taking(BatchLimits())
    own_log = before.own_log(taken)
    assert before.taken_over(taken) == runs((3, 3, 2))

    after = Ledger(Acknowledge.HANDOFF)
    after.recover(logged)
    after.recover_taken(own_log)
    after.settle(runs((3, 3, 1, RELEASE)))
    assert after.plan(BatchLimits()) == runs((3, 3, 2))


# groups that are reset, or deleted and made again


def ahead(logged: AcquiredOffset, own_log: OwnLog | None = None) -> Ledger:
    ledger = Ledger(Acknowledge.HANDOFF)
    ledger.takes_ahead = True
    ledger.recover(logged)
    if own_log is not None:
        ledger.recover_taken(own_log)
    return ledger


def take(ledger: Ledger) -> OwnLog:
    """Accepts ahead what is there. Our own log from then on."""
    taken = ledger.begin_taking(BatchLimits())
    own_log = ledger.own_log(taken)
    assert ledger.taken_over(taken) == taken
    return own_log


def test_a_record_that_was_accepted_ahead_after_a_reset_is_not_taken_for_the_one_in_sparks_log() -> None:
    """It has the same delivery count. Its life is killed before a micro-batch has it."""
    logged = AcquiredOffset(1, "g", batch=runs((0, 9, 1)), accepted=Accepted.AHEAD)
    before = ahead(logged)
    before.reset([PLACE])
    before.settle(RunSet())
    assert not before.acquired(runs((0, 9, 1)))
    own_log = take(before)

    after = ahead(logged, own_log)
    after.reset([PLACE])  # it still knows the state of before only
    after.settle(RunSet())
    assert after.acquired(runs((0, 9, 1))) == runs((0, 9, 1)), "accepted, and to come"
    assert after.plan(BatchLimits()) == runs((0, 9, 1))
    assert after.acquired(runs((0, 9, 2))) == runs((0, 9, 1)), "it comes once"


def test_what_was_accepted_ahead_before_a_reset_comes_once() -> None:
    logged = AcquiredOffset(1, "g", batch=runs((0, 4, 1)), accepted=Accepted.AHEAD)
    ledger = ahead(logged, OwnLog(1, RunSet(), runs((5, 9, 1))))
    ledger.reset([PLACE])
    ledger.settle(RunSet())
    assert ledger.acquired(runs((0, 9, 1))) == runs((5, 9, 1))
    take(ledger)
    assert ledger.plan(BatchLimits()) == runs((0, 9, 1))


def test_records_of_a_micro_batch_that_ran_before_a_reset_are_processed_again() -> None:
    """The group has taken the reader for dead, and was reset; the reader goes on."""
    for mode in Acknowledge:
        ledger = planned(mode)
        ledger.hand_off()
        ledger.reset([PLACE])
        assert not ledger.acquired(runs((0, 9, 1)))
        assert not ledger.settle(RunSet()), "the locks on what has come since are of another delivery"
        assert ledger.plan(BatchLimits()) == runs((0, 9, 1))


def test_records_of_a_micro_batch_that_runs_after_a_reset_are_not_processed_again() -> None:
    """Spark repeats it when the query comes back."""
    for accepted in Accepted:
        ledger = Ledger(Acknowledge.HANDOFF)
        ledger.recover(AcquiredOffset(1, "g", batch=runs((0, 9, 1)), accepted=accepted))
        ledger.reset([PLACE])
        ledger.hand_off()
        ledger.settle(RunSet())
        assert ledger.acquired(runs((0, 9, 1))) == runs((0, 9, 1))


def test_what_is_left_of_a_divided_micro_batch_comes_once_after_a_reset() -> None:
    ledger = Ledger(Acknowledge.COMMIT)
    ledger.recover(AcquiredOffset(1, "g", batch=runs((0, 9, 1))))
    divide(ledger, runs((0, 4, 1)))
    ledger.reset([PLACE])
    ledger.settle(RunSet())
    ledger.acquired(runs((0, 9, 1)))
    assert ledger.plan(BatchLimits()) == runs((5, 9, 1))
    ledger.settle(RunSet())
    assert ledger.plan(BatchLimits()) == runs((0, 4, 1))


def test_a_reset_of_one_partition_leaves_what_was_processed_in_another() -> None:
    ledger = planned()
    ledger.settle(RunSet())
    ledger.reset([("orders", 1)])
    assert ledger.processed == runs((0, 9, 1))


def test_what_spark_has_logged_of_our_own_log_does_not_come_again() -> None:
    """Our own log is one micro-batch older when its life is killed just after Spark has logged one."""
    own_log = OwnLog(1, RunSet(), runs((0, 9, 1)))
    logged = AcquiredOffset(2, "g", batch=runs((0, 4, 1)), processed=runs((0, 9, 1)), accepted=Accepted.AHEAD)
    ledger = ahead(logged, own_log)
    ledger.settle(RunSet())
    assert ledger.plan(BatchLimits()) == runs((5, 9, 1))


def test_what_was_planned_and_not_logged_is_planned_again() -> None:
    logged = AcquiredOffset(1, "g", batch=runs((0, 1, 1)), accepted=Accepted.AHEAD)
    ledger = ahead(logged, OwnLog(2, runs((2, 3, 1)), runs((4, 5, 1))))
    ledger.settle(RunSet())
    assert ledger.plan(BatchLimits()) == runs((2, 5, 1))
