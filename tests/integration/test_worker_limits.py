"""Limits and rates of tasks: of one worker with a turned clock, and of a group whose workers are killed."""

from random import Random

import pytest

from headrace import Broker
from headrace.worker import Queue
from headrace.worker.testing import QueueTest
from tests.conformance.steps import wait_for
from tests.integration import limited_worker
from tests.worker_processes import WorkerProcesses

LIMIT = 2


@pytest.fixture
def queue():
    with Queue("localhost:1", group_id="limited") as queue:
        yield queue


class TestRate:
    def test_runs_start_at_the_rate_and_no_record_is_fetched_before(self, queue):
        seen = []

        @queue.task("numbers", rate="1/h")
        async def work(number: int) -> None:
            seen.append(number)

        with QueueTest(queue) as test:
            queue.send_many("numbers", range(3))
            test.run_until_idle()
            assert (seen, test.metrics()[work.name].received) == ([0], 1)
            test.advance(3_500)
            assert seen == [0]
            test.advance(110)
            wait_for(lambda: seen == [0, 1])
            test.advance(3_700)
            wait_for(lambda: seen == [0, 1, 2])

    def test_a_group_rate_works_with_one_worker(self, queue):
        seen = []

        @queue.task("numbers", group_rate="6/h")
        async def work(number: int) -> None:
            seen.append(number)

        with QueueTest(queue) as test:
            queue.send_many("numbers", range(2))
            wait_for(lambda: queue.crew.runners[0].scheduler.deadline_ms() is not None)  # it has its part
            test.run_until_idle()
            assert seen == []
            test.advance(700)
            wait_for(lambda: seen == [0])

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"rate": "fast"}, "rate is wrong: 'fast' is not a rate"),
            ({"group_rate": "0/s"}, "group_rate is wrong: '0/s' is not a rate"),
            ({"limit": 0}, "limit must be a whole number from 1 to 1000, or None, got 0"),
        ],
    )
    def test_what_is_not_possible_is_refused(self, queue, options, words):
        def work(number: int) -> None: ...

        with pytest.raises(ValueError, match=words):
            queue.task("numbers", **options)(work)


def test_a_limit_works_in_a_queue_test(queue):
    @queue.task("numbers", limit=LIMIT)
    def work(number: int) -> None: ...

    with QueueTest(queue) as test:
        queue.send_many("numbers", range(20))
        wait_for(lambda: test.metrics()[work.name].succeeded == 20)


def most_at_a_time(lines: list[str], killed: dict[int, float]) -> int:
    """Runs of a killed worker end when it is gone at the latest."""
    events = []
    for line in lines:
        at, pid, what, number = line.split()
        events.append((float(at), what == "begin", (int(pid), int(number))))
    running: set[tuple[int, int]] = set()
    most = 0
    for at, begins, run in sorted(events):
        running = {each for each in running if killed.get(each[0], at) >= at}
        (running.add if begins else running.discard)(run)
        most = max(most, len(running))
    return most


@pytest.mark.parametrize("seed", [1])
def test_killed_workers_lose_nothing_exceed_nothing_and_leave_their_permits(tmp_path, seed):
    rng, notes = Random(seed), tmp_path / "notes"
    session = {
        "group.consumer.session.timeout.ms": 2_000,
        "group.consumer.min.session.timeout.ms": 1_000,
        "group.consumer.heartbeat.interval.ms": 200,
        "group.consumer.min.heartbeat.interval.ms": 100,
    }

    def done() -> set[int]:
        lines = notes.read_text().splitlines() if notes.exists() else []
        return {int(line.split()[3]) for line in lines if " end " in line}

    with Broker(settings=session) as broker, Queue(broker.bootstrap_servers, group_id="limited") as queue:
        workers = WorkerProcesses(limited_worker.__file__, broker.bootstrap_servers, str(notes), str(LIMIT))
        sent = 0
        try:
            workers.start()
            workers.start()
            for _ in range(4):
                before = len(done())
                queue.send_many("numbers", range(sent, sent + 60))
                sent += 60
                wait_for(lambda before=before: len(done()) > before + rng.randrange(30), timeout_s=60)
                workers.kill(rng.randrange(len(workers.running)))
                workers.start()
            wait_for(lambda: done() == set(range(sent)), timeout_s=60)
        finally:
            workers.stop()
    assert most_at_a_time(notes.read_text().splitlines(), workers.killed) <= LIMIT
