"""The scheduler: what runs, what waits, what is given up; and whatever happens, its bounds and lanes hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.worker.backoff import Backoff
from headrace.worker.circuit import Breaker
from headrace.worker.jobs import Job, Stage
from headrace.worker.outcomes import DONE, BodyError, Reject, Retry, TaskOutcome, TaskResult, outcome_of
from headrace.worker.rules import Decision, GiveUpCause, Rules, Verdict
from headrace.worker.scheduler import Scheduler

FAILED = outcome_of(ValueError("no"))
NOTHING = Decision(Verdict.NOTHING)
STEADY = Backoff(first=1.0, factor=2.0, most=60.0, jitter=0)


def make(concurrency=2, waiting_max=10, *, retries=STEADY, delivery_limit=5, saves=False, key_order=False):
    rules = Rules(retries, delivery_limit, saves)
    return Scheduler(rules, concurrency=concurrency, waiting_max=waiting_max, key_order=key_order)


def job(offset, key=None, *, partition=0, deliveries=1):
    return Job(partition=partition, offset=offset, key=key, delivery_count=deliveries)


def admit(scheduler, *jobs):
    assert [scheduler.admit(each) for each in jobs] == [NOTHING] * len(jobs)


def end(scheduler, each, outcome=DONE, now_ms=0):
    return scheduler.finished(each, outcome, now_ms=now_ms, chance=0.5)


class TestRoom:
    def test_is_what_could_start_at_once(self):
        scheduler = make(concurrency=3)
        admit(scheduler, job(0))
        assert scheduler.room() == 2

        scheduler.start(0)
        assert scheduler.room() == 2

    def test_comes_back_when_a_run_ends(self):
        scheduler = make(concurrency=1)
        first = job(0)
        admit(scheduler, first)
        scheduler.start(0)
        assert scheduler.room() == 0

        end(scheduler, first)
        assert scheduler.room() == 1

    def test_is_there_while_records_wait_for_another_try(self):
        scheduler = make(concurrency=1, waiting_max=1)
        first = job(0)
        admit(scheduler, first)
        scheduler.start(0)
        end(scheduler, first, FAILED)

        assert scheduler.room() == 1

    def test_is_gone_when_as_many_are_held_as_may_be(self):
        scheduler = make(concurrency=1, waiting_max=1)
        for offset in (0, 1):
            each = job(offset)
            admit(scheduler, each)
            scheduler.start(0)
            end(scheduler, each, FAILED)

        assert scheduler.lanes.held == scheduler.held_max == 2
        assert scheduler.room() == 0

    def test_is_less_by_a_thread_that_cannot_be_stopped(self):
        scheduler = make(concurrency=1)
        first = job(0)
        admit(scheduler, first)
        scheduler.start(0)
        scheduler.finished(first, FAILED, now_ms=0, chance=0.5, frees_slot=False)
        assert scheduler.room() == 0

        scheduler.free_slot(first, first.slot)
        assert scheduler.room() == 1

    def test_is_nothing_while_draining(self):
        scheduler = make()
        scheduler.drain()

        assert scheduler.room() == 0


class TestRetries:
    def test_a_failed_record_runs_again_when_its_delay_is_over(self):
        scheduler = make()
        first = job(0)
        admit(scheduler, first)
        assert scheduler.start(0) == [first]

        assert end(scheduler, first, FAILED, now_ms=100) == Decision(Verdict.RETRY, delay_ms=1_000)
        assert scheduler.deadline_ms() == 1_100
        assert scheduler.start(1_099) == []
        assert scheduler.start(1_100) == [first]
        assert scheduler.deadline_ms() is None

    def test_delays_grow_with_the_attempts_and_earlier_deliveries_count(self):
        scheduler = make()
        first = job(0, deliveries=3)
        admit(scheduler, first)
        scheduler.start(0)

        assert end(scheduler, first, FAILED).delay_ms == 4_000

    def test_tries_are_the_limit_of_attempts(self):
        scheduler = make(retries=Backoff(tries=3))
        first = job(0)
        admit(scheduler, first)
        verdicts = []
        for now_ms in (0, 10_000, 20_000):
            scheduler.start(now_ms)
            verdicts.append(end(scheduler, first, FAILED, now_ms=now_ms))

        assert [each.verdict for each in verdicts] == [Verdict.RETRY, Verdict.RETRY, Verdict.GIVE_UP]
        assert verdicts[-1].cause is GiveUpCause.EXHAUSTED

    def test_tries_of_the_backoff_win_over_the_delivery_limit(self):
        scheduler = make(retries=Backoff(tries=1), delivery_limit=5)
        first = job(0)
        admit(scheduler, first)
        scheduler.start(0)

        assert end(scheduler, first, FAILED) == Decision(Verdict.GIVE_UP, GiveUpCause.EXHAUSTED)

    def test_without_retries_a_failure_is_the_end_but_asking_for_another_try_is_heard(self):
        scheduler = make(retries=None)
        first, second = job(0), job(1)
        admit(scheduler, first, second)
        scheduler.start(0)

        assert end(scheduler, first, FAILED).verdict is Verdict.GIVE_UP
        assert end(scheduler, second, outcome_of(Retry(after=7))) == Decision(Verdict.RETRY, delay_ms=7_000)

    def test_a_delay_that_was_asked_for_is_taken_as_it_is(self):
        scheduler = make()
        first = job(0)
        admit(scheduler, first)
        scheduler.start(0)

        assert end(scheduler, first, outcome_of(Retry(after=0))) == Decision(Verdict.RETRY, delay_ms=0)
        assert scheduler.start(0) == [first]

    @pytest.mark.parametrize(
        ("error", "cause"), [(Reject("no"), GiveUpCause.REJECTED), (BodyError("no"), GiveUpCause.UNREADABLE)]
    )
    def test_what_can_never_succeed_is_given_up_at_once(self, error, cause):
        scheduler = make()
        first = job(0)
        admit(scheduler, first)
        scheduler.start(0)

        assert end(scheduler, first, outcome_of(error)) == Decision(Verdict.GIVE_UP, cause)


class TestLastDelivery:
    def test_is_given_up_without_a_run_where_the_worker_writes_dead_letters(self):
        scheduler = make(saves=True, delivery_limit=5)
        last = job(0, deliveries=5)

        assert scheduler.admit(last) == Decision(Verdict.GIVE_UP, GiveUpCause.LAST_DELIVERY)
        assert scheduler.start(0) == []
        assert scheduler.lanes.held == 1

        scheduler.leave(last)
        assert scheduler.lanes.held == 0

    def test_is_run_where_the_broker_writes_them(self):
        scheduler = make(saves=False, delivery_limit=5)
        last = job(0, deliveries=5)
        admit(scheduler, last)

        assert scheduler.start(0) == [last]
        assert end(scheduler, last, FAILED).verdict is Verdict.RETRY


class TestLanes:
    def test_records_of_one_key_run_one_after_another_in_the_order_of_offsets(self):
        scheduler = make(concurrency=3, key_order=True)
        first, second, other = job(0, b"a"), job(1, b"a"), job(2, b"b")
        admit(scheduler, second, first, other)

        assert scheduler.start(0) == [first, other]
        end(scheduler, first)
        assert scheduler.start(0) == [second]

    def test_a_record_that_waits_for_its_backoff_holds_its_key(self):
        scheduler = make(concurrency=3, key_order=True)
        first, second = job(0, b"a"), job(1, b"a")
        admit(scheduler, first, second)
        scheduler.start(0)
        end(scheduler, first, FAILED)

        assert scheduler.start(0) == []
        assert scheduler.start(1_000) == [first]

    def test_a_record_whose_dead_letter_is_being_written_holds_its_key(self):
        scheduler = make(concurrency=3, key_order=True)
        first, second = job(0, b"a"), job(1, b"a")
        admit(scheduler, first, second)
        scheduler.start(0)
        end(scheduler, first, outcome_of(Reject("no")))
        assert scheduler.start(0) == []

        scheduler.leave(first)
        assert scheduler.start(0) == [second]

    def test_a_redelivered_record_comes_before_later_ones_that_wait(self):
        scheduler = make(concurrency=3, key_order=True)
        running, later, again = job(5, b"a"), job(7, b"a"), job(3, b"a", deliveries=2)
        admit(scheduler, running)
        scheduler.start(0)
        admit(scheduler, later, again)
        end(scheduler, running)

        assert scheduler.start(0) == [again]

    def test_a_redelivered_record_comes_before_one_that_has_its_turn_but_not_begun(self):
        scheduler = make(concurrency=1, key_order=True)
        busy, later, again = job(0, b"other"), job(7, b"a"), job(3, b"a", deliveries=2)
        admit(scheduler, busy)
        scheduler.start(0)
        admit(scheduler, later, again)
        end(scheduler, busy)

        assert scheduler.start(0) == [again]
        end(scheduler, again)
        assert scheduler.start(0) == [later]

    def test_records_without_a_key_are_bound_to_nobody(self):
        scheduler = make(concurrency=2, key_order=True)
        first, second = job(0), job(1)
        admit(scheduler, first, second)

        assert scheduler.start(0) == [first, second]

    @pytest.mark.parametrize("outcome", [FAILED, outcome_of(Reject("no"))])
    def test_a_run_that_cannot_be_stopped_holds_its_key_until_it_ends(self, outcome):
        scheduler = make(concurrency=3, key_order=True)
        first, second = job(0, b"k"), job(1, b"k")
        admit(scheduler, first, second)
        scheduler.start(0)
        decision = scheduler.finished(first, outcome, now_ms=0, chance=0.5, frees_slot=False)
        if decision.verdict is Verdict.GIVE_UP:
            scheduler.leave(first)
        assert scheduler.start(60_000) == []

        scheduler.free_slot(first, first.slot)
        assert scheduler.start(60_000) == [first if outcome is FAILED else second]

    def test_without_key_order_keys_do_not_matter(self):
        scheduler = make(concurrency=2)
        first, second = job(0, b"a"), job(1, b"a")
        admit(scheduler, first, second)

        assert scheduler.start(0) == [first, second]

    def test_records_held_back_by_their_key_leave_room_for_others_up_to_the_bound(self):
        scheduler = make(concurrency=2, waiting_max=2, key_order=True)
        admit(scheduler, *(job(offset, b"a") for offset in range(3)))
        scheduler.start(0)

        assert scheduler.room() == 1
        admit(scheduler, job(3, b"a"))
        assert scheduler.room() == 0


class TestLoss:
    def test_a_lost_record_that_waits_never_runs_again(self):
        scheduler = make()
        first = job(0)
        admit(scheduler, first)
        scheduler.start(0)
        end(scheduler, first, FAILED)

        scheduler.leave(first)
        assert scheduler.start(100_000) == []
        assert scheduler.lanes.held == 0

    def test_the_end_of_a_lost_run_settles_nothing(self):
        scheduler = make(concurrency=1)
        first = job(0)
        admit(scheduler, first)
        scheduler.start(0)

        scheduler.leave(first)
        assert end(scheduler, first) == NOTHING
        assert scheduler.room() == 1

    def test_a_record_delivered_again_waits_until_its_lost_run_has_ended(self):
        scheduler = make(concurrency=2)
        first, again = job(0), job(0, deliveries=2)
        admit(scheduler, first)
        scheduler.start(0)
        scheduler.leave(first)
        admit(scheduler, again)
        assert scheduler.start(0) == []

        end(scheduler, first)
        assert scheduler.start(0) == [again]

    def test_a_record_lost_before_it_ran_gives_way_to_the_next_of_its_key(self):
        scheduler = make(key_order=True)
        first, second = job(0, b"a"), job(1, b"a")
        admit(scheduler, first, second)
        scheduler.leave(first)

        assert scheduler.start(0) == [second]


class TestOpenCircuit:
    def test_a_probe_is_a_new_record_even_if_records_that_failed_are_ready(self):
        rules, breaker = Rules(STEADY, 5), Breaker(failures=2, first=5, most=5)
        scheduler = Scheduler(rules, concurrency=2, waiting_max=10, key_order=False, breaker=breaker)
        poison, good = [job(0), job(1)], job(2)
        admit(scheduler, *poison)
        for each in scheduler.start(0):
            end(scheduler, each, FAILED)
        assert scheduler.start(2_000) == [], "both are ready again, and the circuit is open"
        assert scheduler.room() == 1

        admit(scheduler, good)
        assert scheduler.room() == 0
        assert scheduler.start(5_000) == [good]
        end(scheduler, good, now_ms=5_000)
        assert scheduler.start(5_000) == poison, "it has closed"

    def test_without_a_new_record_one_that_failed_is_tried(self):
        rules, breaker = Rules(STEADY, 5), Breaker(failures=1, first=5, most=5)
        scheduler = Scheduler(rules, concurrency=2, waiting_max=0, key_order=False, breaker=breaker)
        admit(scheduler, failed := job(0))
        scheduler.start(0)
        end(scheduler, failed, FAILED)

        assert scheduler.start(4_000) == []
        assert scheduler.start(5_000) == [failed]

    def test_no_more_is_asked_for_than_may_be_held(self):
        rules, breaker = Rules(STEADY, 5), Breaker(failures=1)
        scheduler = Scheduler(rules, concurrency=1, waiting_max=0, key_order=False, breaker=breaker)
        admit(scheduler, failed := job(0))
        scheduler.start(0)
        end(scheduler, failed, FAILED)
        assert scheduler.room() == 0


class TestDrain:
    def test_releases_what_no_function_has_in_hand(self):
        scheduler = make(concurrency=1, key_order=True)
        running, waiting, blocked = job(0, b"a"), job(1, b"b"), job(2, b"a")
        admit(scheduler, waiting)
        scheduler.start(0)
        end(scheduler, waiting, FAILED)
        admit(scheduler, running, blocked)
        scheduler.start(0)

        assert set(scheduler.drain()) == {waiting, blocked}
        assert scheduler.lanes.counts[Stage.RUNNING] == scheduler.lanes.held == 1

    def test_a_failure_while_draining_releases_and_a_success_accepts(self):
        scheduler = make()
        first, second = job(0), job(1)
        admit(scheduler, first, second)
        scheduler.start(0)
        scheduler.drain()

        assert end(scheduler, first, FAILED) == Decision(Verdict.RELEASE)
        assert end(scheduler, second) == Decision(Verdict.ACCEPT)
        assert scheduler.lanes.held == 0

    def test_a_record_that_arrives_late_is_released(self):
        scheduler = make()
        scheduler.drain()

        assert scheduler.admit(job(0)) == Decision(Verdict.RELEASE)
        assert scheduler.lanes.held == 0


OUTCOMES = [DONE, FAILED, TaskOutcome(TaskResult.RETRY_ASKED, retry_after_s=0.5), outcome_of(Reject("no"))]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("admit"), st.integers(0, 2), st.integers(1, 5)),
        st.tuples(st.just("end"), st.integers(0, 9), st.sampled_from(range(len(OUTCOMES)))),
        st.tuples(st.just("settle"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("lose"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("wait"), st.integers(0, 5_000), st.just(0)),
    ),
    max_size=60,
)


@given(steps=STEPS, key_order=st.booleans(), saves=st.booleans(), drains=st.booleans())
def test_whatever_happens_bounds_and_lanes_hold_and_every_record_leaves(steps, key_order, saves, drains):
    scheduler = make(concurrency=2, waiting_max=2, key_order=key_order, saves=saves)
    now_ms, offset = 0, 0
    running: list[Job] = []
    giving_up: list[Job] = []
    every: list[Job] = []

    def start() -> None:
        for each in scheduler.start(now_ms):
            assert each.stage is Stage.RUNNING
            lane_mates = [other for other in running if key_order and other.key == each.key]
            assert not lane_mates, "two of one key at once"
            waiting = [o for o in every if o.key == each.key and o.stage in (Stage.READY, Stage.WAITING)]
            assert not key_order or all(other.offset > each.offset for other in waiting), "out of order"
            running.append(each)
        assert len(running) <= 2

    def finish(each: Job, outcome: TaskOutcome) -> None:
        running.remove(each)
        if end(scheduler, each, outcome, now_ms).verdict is Verdict.GIVE_UP:
            giving_up.append(each)

    for kind, number, more in steps:
        if kind == "admit" and scheduler.room():
            each = job(offset, bytes([number]), deliveries=more)
            offset += 1
            every.append(each)
            if scheduler.admit(each).verdict is Verdict.GIVE_UP:
                giving_up.append(each)
        elif kind == "end" and running:
            finish(running[number % len(running)], OUTCOMES[more])
        elif kind == "settle" and giving_up:
            scheduler.leave(giving_up.pop(number % len(giving_up)))
        elif kind == "lose" and every:
            each = every[number % len(every)]
            scheduler.leave(each)
            if each in giving_up:
                giving_up.remove(each)
        elif kind == "wait":
            now_ms += number
        start()
        assert scheduler.lanes.held <= scheduler.held_max
        assert scheduler.lanes.held == sum(each.stage is not Stage.GONE for each in every)
        assert scheduler.lanes.counts[Stage.WAITING] == 0 or scheduler.deadline_ms() is not None

    if drains:
        for each in scheduler.drain():
            assert each.stage is Stage.GONE
    for _ in range(10_000):
        for each in list(giving_up):
            giving_up.remove(each)
            scheduler.leave(each)
        for each in list(running):
            finish(each, DONE)
        if (deadline_ms := scheduler.deadline_ms()) is not None:
            now_ms = max(now_ms, deadline_ms)
        start()
        if not (running or giving_up or scheduler.lanes.held):
            break
    assert scheduler.lanes.held == 0
    assert all(each.stage is Stage.GONE for each in every)
    assert scheduler.room() == (0 if drains else 2)
