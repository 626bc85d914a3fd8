"""Batches in the scheduler: how many records a call gets, and when; and whatever happens, its bounds hold."""

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from headrace.worker.batch import Batch, spread
from headrace.worker.circuit import Breaker
from headrace.worker.jobs import Job, Stage
from headrace.worker.outcomes import DONE, Reject, TaskOutcome, outcome_of
from headrace.worker.rules import Rules, Verdict
from headrace.worker.scheduler import Scheduler
from tests.unit.worker.test_scheduler import FAILED, STEADY, STEPS, admit, end, job

SHARED = spread(FAILED, 2)[0]


def make(max=3, wait=0.1, *, concurrency=2, waiting_max=10, key_order=False, breaker=None):
    return Scheduler(
        Rules(STEADY, 5), concurrency=concurrency, waiting_max=waiting_max, key_order=key_order, breaker=breaker,
        batch=Batch(max=max, wait=wait),
    )  # fmt: skip


def calls(scheduler, now_ms):
    """The records of each call that starts now."""
    started = scheduler.start(now_ms)
    return [[each.offset for each in jobs] for _, jobs in groupby(started, key=lambda each: each.slot)]


def jobs(count, *, start=0):
    return [job(offset) for offset in range(start, start + count)]


class TestGathering:
    def test_room_is_for_full_batches(self):
        scheduler = make(max=3, concurrency=2)
        assert scheduler.room() == 6
        admit(scheduler, *jobs(2))
        assert scheduler.room() == 4

    def test_a_full_batch_starts_at_once_and_the_rest_waits(self):
        scheduler = make(max=3, wait=0.1)
        admit(scheduler, *jobs(4))

        assert calls(scheduler, 1_000) == [[0, 1, 2]]
        assert not scheduler.has_ready
        assert scheduler.deadline_ms() == 1_100
        assert calls(scheduler, 1_099) == []
        assert calls(scheduler, 1_100) == [[3]]
        assert scheduler.deadline_ms() is None

    def test_the_wait_is_that_of_the_first_record(self):
        scheduler = make(max=3, wait=0.1)
        admit(scheduler, job(0))
        assert calls(scheduler, 1_000) == []
        admit(scheduler, job(1))
        assert calls(scheduler, 1_090) == []
        assert calls(scheduler, 1_100) == [[0, 1]]

    def test_without_a_wait_whatever_is_there_starts(self):
        scheduler = make(max=3, wait=0)
        admit(scheduler, job(0))
        assert calls(scheduler, 5) == [[0]]

    def test_no_alarm_is_set_while_every_slot_is_taken(self):
        scheduler = make(max=3, wait=0.1, concurrency=1, waiting_max=5)
        first, *others = jobs(3)
        admit(scheduler, first)
        assert calls(scheduler, 0) == []
        assert calls(scheduler, 100) == [[0]]
        admit(scheduler, *others)
        assert calls(scheduler, 100) == []
        assert scheduler.deadline_ms() is None
        assert scheduler.room() == 0

        end(scheduler, first, now_ms=900)
        assert calls(scheduler, 900) == [[1, 2]], "they have waited long enough"

    def test_of_a_key_one_record_is_in_a_batch(self):
        scheduler = make(max=3, wait=0, key_order=True)
        admit(scheduler, job(0, b"a"), job(1, b"a"), job(2, b"b"))
        assert calls(scheduler, 0) == [[0, 2]]

    def test_a_slot_is_free_when_all_records_of_its_call_have_ended(self):
        scheduler = make(max=2, concurrency=1)
        first, second, *others = jobs(4)
        admit(scheduler, first, second)
        assert calls(scheduler, 0) == [[0, 1]]
        end(scheduler, first)
        assert scheduler.room() == 0
        end(scheduler, second)
        assert scheduler.room() == 2

        admit(scheduler, *others)
        scheduler.start(0)
        for each in others:
            scheduler.finished(each, SHARED, now_ms=0, chance=0.5, frees_slot=False)
        assert scheduler.room() == 0
        slot = others[0].slot
        assert slot is not None
        for each in others:
            scheduler.free_slot(each, slot)
        assert scheduler.room() == 2

    def test_a_run_that_goes_on_frees_its_own_slot_and_no_other(self):
        scheduler = make(max=2, concurrency=2, wait=0)
        pair = jobs(2)
        admit(scheduler, *pair)
        scheduler.start(0)
        first_slot = pair[0].slot
        assert first_slot is not None
        for each in pair:
            scheduler.finished(each, SHARED, now_ms=0, chance=0.5, frees_slot=False)
        assert calls(scheduler, 1_000) == [[0]], "alone, beside the run that goes on"
        for each in pair:
            scheduler.free_slot(each, first_slot)
        assert calls(scheduler, 1_000) == [[1]]
        assert scheduler.room() == 0

    def test_draining_releases_what_has_not_begun(self):
        scheduler = make(max=3)
        admit(scheduler, *(two := jobs(2)))
        scheduler.start(0)
        assert scheduler.drain() == two


class TestFailures:
    def test_records_of_a_failed_batch_run_alone_next_time(self):
        scheduler = make(max=3, concurrency=4, wait=0)
        admit(scheduler, *(three := jobs(3)))
        scheduler.start(0)
        for each in three:
            assert end(scheduler, each, SHARED).verdict is Verdict.RETRY
        admit(scheduler, *jobs(2, start=3))

        assert calls(scheduler, 1_000) == [[0], [1], [2], [3, 4]]

    def test_a_record_that_failed_by_itself_may_run_with_others_again(self):
        scheduler = make(max=2, wait=0)
        admit(scheduler, *(pair := jobs(2)))
        scheduler.start(0)
        for each in pair:
            end(scheduler, each, FAILED)
        assert calls(scheduler, 1_000) == [[0, 1]]

    def test_a_record_on_its_third_delivery_runs_alone(self):
        scheduler = make(max=3, wait=10)
        admit(scheduler, job(0, deliveries=2), job(1, deliveries=3), job(2))
        assert calls(scheduler, 0) == [[1]]
        assert calls(scheduler, 10_000) == [[0, 2]]

    def test_a_failed_batch_is_one_failure_for_the_breaker(self):
        scheduler = make(max=3, concurrency=1, breaker=Breaker(failures=2))
        for start in (0, 3):
            assert not scheduler.circuit.is_open
            admit(scheduler, *(three := jobs(3, start=start)))
            scheduler.start(0)
            for each in three:
                end(scheduler, each, SHARED)
        assert scheduler.circuit.is_open

    def test_failures_beside_a_success_do_not_count(self):
        scheduler = make(max=3, concurrency=1, breaker=Breaker(failures=2))
        admit(scheduler, *(three := jobs(3)))
        scheduler.start(0)
        for each, outcome in zip(three, (DONE, FAILED, FAILED), strict=True):
            end(scheduler, each, outcome)
        assert not scheduler.circuit.is_open

    def test_a_probe_is_one_record(self):
        scheduler = make(max=3, concurrency=2, breaker=Breaker(failures=1, first=1, most=1))
        admit(scheduler, *(three := jobs(3)))
        scheduler.start(0)
        for each in three:
            end(scheduler, each, SHARED)
        assert scheduler.room() == 1
        admit(scheduler, probe := job(3))
        assert scheduler.deadline_ms() == 1_000
        assert calls(scheduler, 1_000) == [[3]]
        end(scheduler, probe, now_ms=1_000)
        assert not scheduler.circuit.is_open


OUTCOMES = [DONE, FAILED, SHARED, outcome_of(Reject("no"))]


@given(steps=STEPS, key_order=st.booleans(), max=st.integers(1, 3), wait=st.sampled_from((0, 0.5, 3)))
def test_whatever_happens_calls_are_bounded_and_every_record_leaves(steps, key_order, max, wait):
    scheduler = make(max, wait, waiting_max=2, key_order=key_order)
    now_ms, offset = 0, 0
    running: list[Job] = []
    giving_up: list[Job] = []
    every: list[Job] = []

    def start() -> None:
        had_slot = len({id(each.slot) for each in running}) < 2
        started = scheduler.start(now_ms)
        running.extend(started)
        slots = {each.slot for each in running}
        assert len(slots) <= 2
        for slot in slots:
            ours = [each for each in started if each.slot is slot]
            assert len(ours) <= max
            assert len(ours) <= 1 or not any(each.is_alone for each in ours)
            assert not key_order or len({each.key for each in ours}) == len(ours)
        if had_slot and (gathered := scheduler.deadline_ms()) is not None and not scheduler.circuit.is_open:
            assert gathered > now_ms or len(slots) == 2, "a worker would set its alarm again and again"
        if scheduler.has_ready:
            assert len(slots) == 2, "something could start"

    def finish(each: Job, outcome: TaskOutcome) -> None:
        running.remove(each)
        if end(scheduler, each, outcome, now_ms).verdict is Verdict.GIVE_UP:
            giving_up.append(each)

    for kind, number, more in steps:
        if kind == "admit" and scheduler.room():
            every.append(job(offset, bytes([number]), deliveries=more))
            scheduler.admit(every[-1])
            offset += 1
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
        assert scheduler.lanes.held <= scheduler.held_max == 2 * max + 2
        assert scheduler.lanes.held == sum(each.stage is not Stage.GONE for each in every)

    for _ in range(1_000):
        for each in list(giving_up):
            giving_up.remove(each)
            scheduler.leave(each)
        for each in list(running):
            finish(each, DONE)
        start()
        if (deadline_ms := scheduler.deadline_ms()) is not None:
            now_ms = deadline_ms if deadline_ms > now_ms else now_ms
        if not (running or giving_up or scheduler.lanes.held):
            break
    assert all(each.stage is Stage.GONE for each in every)
    assert scheduler.room() == 2 * max
