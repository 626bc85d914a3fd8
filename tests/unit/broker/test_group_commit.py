"""GroupCommit: one sync serves all who wait, and a failed sync is final. The worker thread is a list we run by hand."""

from collections.abc import Callable
from typing import Any

from headrace.broker.group_commit import GroupCommit


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


def commit_on(run: HandRun, synced: list[Any], failures: list[Exception]) -> GroupCommit:
    return GroupCommit(lambda logs: synced.append(set(logs)), run, failures.append)


def test_requests_that_come_during_a_sync_share_the_next_one() -> None:
    run, synced = HandRun(), []
    commit = commit_on(run, synced, [])
    first = commit.durable(["a"])  # type: ignore[list-item]
    second = commit.durable(["b"])  # type: ignore[list-item]
    third = commit.durable(["a"])  # type: ignore[list-item]
    assert len(run.jobs) == 1
    run.finish_one()
    assert first.is_done
    assert not second.is_done
    assert not third.is_done
    run.finish_one()
    assert second.is_done
    assert third.is_done
    assert synced == [{"a"}, {"a", "b"}]
    assert run.jobs == []


def test_nobody_is_told_that_a_failed_sync_made_it_durable() -> None:
    run, failures = HandRun(), []

    def fail(_: object) -> None:
        raise OSError("no space left")

    commit = GroupCommit(fail, run, failures.append)
    first = commit.durable(["a"])  # type: ignore[list-item]
    second = commit.durable(["b"])  # type: ignore[list-item]
    run.finish_one()
    assert [str(error) for error in failures] == ["no space left"]
    assert not first.is_done
    assert not second.is_done
    assert not commit.durable(["c"]).is_done  # type: ignore[list-item]
    assert run.jobs == []


def test_without_a_runner_everything_counts_as_durable_at_once() -> None:
    commit = GroupCommit(lambda _: None, None, lambda _: None)
    assert commit.durable(["a"]).is_done  # type: ignore[list-item]
