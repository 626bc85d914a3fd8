"""GroupCommit: one sync of a thing serves all who wait for it, nobody waits for others' things, a failed sync is final.

The worker threads are a list we run by hand.
"""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.broker.group_commit import GroupCommit, sync_each
from headrace.broker.later import Later
from headrace.wire.errors import ErrorCode, KafkaError


class HandRun:
    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], None], Callable[[Exception | None], None]]] = []

    def __call__(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        self.jobs.append((work, done))

    def finish_one(self) -> None:
        work, done = self.jobs.pop(0)
        try:
            work()
        except Exception as error:
            done(error)
        else:
            done(None)


def commit_on(run: HandRun, synced: list[Any], **more: Any) -> GroupCommit:
    return GroupCommit(lambda things: synced.extend(things), run, pytest.fail, **more)


def durable(commit: GroupCommit, *things: object) -> Later[None]:
    return commit.durable(things)  # type: ignore[arg-type]


def test_requests_that_come_during_a_sync_share_the_next_one() -> None:
    run, synced = HandRun(), []
    commit = commit_on(run, synced)
    first, second, third = (durable(commit, "a") for _ in range(3))
    assert len(run.jobs) == 1
    run.finish_one()
    assert (first.is_done, second.is_done, third.is_done) == (True, False, False)
    run.finish_one()
    assert second.is_done
    assert third.is_done
    assert synced == ["a", "a"]
    assert run.jobs == []


def test_nobody_waits_for_the_syncs_of_others() -> None:
    run, synced = HandRun(), []
    commit = commit_on(run, synced)
    others = durable(commit, "a", "b", "c")
    mine = durable(commit, "d")
    while not mine.is_done:
        run.jobs.insert(0, run.jobs.pop())
        run.finish_one()
    assert synced == ["d"]
    assert not others.is_done
    while run.jobs:
        run.finish_one()
    assert others.is_done


def test_a_request_for_one_thing_goes_ahead_of_the_rest_of_a_request_for_many() -> None:
    run, synced = HandRun(), []
    commit = commit_on(run, synced, syncs_max=2)
    others = durable(commit, *range(100))
    mine, also_mine = durable(commit, "mine"), durable(commit, 99)
    while not (mine.is_done and also_mine.is_done):
        run.finish_one()
    assert len(synced) <= 8
    while run.jobs:
        run.finish_one()
    assert others.is_done
    assert sorted(map(str, synced)) == sorted([*map(str, range(100)), "mine"])


def test_no_more_syncs_run_at_a_time_than_there_are_threads() -> None:
    run, synced = HandRun(), []
    commit = commit_on(run, synced, syncs_max=3)
    waiting = [durable(commit, thing) for thing in range(10)]
    while run.jobs:
        assert len(run.jobs) <= 3
        run.finish_one()
    assert all(later.is_done for later in waiting)


def test_what_needs_no_sync_is_durable_at_once_even_while_others_sync() -> None:
    run = HandRun()
    commit = commit_on(run, [])
    durable(commit, "a")
    assert durable(commit).is_done


def test_a_thing_is_durable_when_what_it_rests_on_is_too() -> None:
    run = HandRun()
    synced: list[object] = []
    commit = GroupCommit(
        lambda things: (synced.extend(things), ["root"] if "log" in things else [])[1], run, pytest.fail
    )  # type: ignore[arg-type, return-value]
    log = durable(commit, "log")
    run.finish_one()
    assert not log.is_done
    run.finish_one()
    assert log.is_done
    assert synced == ["log", "root"]


def test_a_refused_sync_fails_those_who_waited_and_may_be_tried_again() -> None:
    run = HandRun()
    refusals = [KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "full")]

    class Checkpoint:
        def sync(self) -> None:
            if refusals:
                raise refusals.pop()

    commit, checkpoint = GroupCommit(sync_each, run, pytest.fail), Checkpoint()
    first = commit.durable([checkpoint])
    run.finish_one()
    with pytest.raises(KafkaError, match="full"):
        _ = first.value
    second = commit.durable([checkpoint])
    run.finish_one()
    assert second.value is None


def test_nobody_is_told_that_a_failed_sync_made_it_durable() -> None:
    run, failures = HandRun(), []

    def fail(_: object) -> None:
        raise OSError("no space left")

    commit = GroupCommit(fail, run, failures.append)
    first, second = durable(commit, "a"), durable(commit, "a", "b")
    run.finish_one()
    assert [str(error) for error in failures] == ["no space left"]
    assert not first.is_done
    assert not second.is_done
    assert not durable(commit, "c").is_done


def test_work_that_is_done_on_the_spot_does_not_recurse() -> None:
    def at_once(work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        work()
        done(None)

    commit = GroupCommit(lambda _: None, at_once, pytest.fail)
    assert durable(commit, *range(5000)).is_done


def test_with_flush_os_only_what_must_be_saved_is_synced() -> None:
    run, synced = HandRun(), []
    commit = commit_on(run, synced, waits=False)
    assert durable(commit, "a").is_done
    saved = commit.saved(["b"])  # type: ignore[list-item]
    assert not saved.is_done
    run.finish_one()
    assert saved.is_done
    assert synced == ["b"]


def test_without_a_runner_everything_counts_as_durable_at_once() -> None:
    commit = GroupCommit(lambda _: None, None, pytest.fail)
    assert durable(commit, "a").is_done
    assert commit.saved(["a"]).is_done  # type: ignore[list-item]


@pytest.mark.parametrize(("took_ms", "at_a_time"), [(10, 32), (3, 12), (0, 4)])
def test_slow_syncs_run_many_at_a_time_and_fast_ones_few(took_ms: int, at_a_time: int) -> None:
    run, now_ms = HandRun(), 0

    def sync(_: list[Any]) -> None:
        nonlocal now_ms
        now_ms += took_ms

    commit = GroupCommit(sync, run, pytest.fail, now_ms=lambda: now_ms)
    done = durable(commit, *range(400))
    running = []
    while not done.is_done:
        running.append(len(run.jobs))
        run.finish_one()
    assert max(running) == pytest.approx(at_a_time, abs=1)
    assert running[0] == 4
