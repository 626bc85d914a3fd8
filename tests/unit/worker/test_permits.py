"""Permits: whatever the order of heartbeats, runs and losses, all workers together have no more than there are."""

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.errors import error_for
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.consumer_group_heartbeat_response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from headrace.worker.permits import PermitLedger, Permits
from tests.virtual_time import run_in_virtual_time


def test_what_is_granted_may_be_used():
    ledger = PermitLedger(3)
    ledger.assigned([0, 2])
    assert (ledger.capacity, ledger.report(0)) == (2, {0, 2})


def test_what_is_taken_away_is_kept_while_it_is_in_use():
    ledger = PermitLedger(3)
    ledger.assigned([0, 1, 2])
    ledger.assigned([1])
    assert ledger.capacity == 1
    assert ledger.report(3) == {0, 1, 2}
    assert not ledger.frees(3)
    assert ledger.frees(2)
    assert ledger.report(2) == {0, 1}
    assert not ledger.frees(2)
    assert ledger.report(1) == {1}
    assert not ledger.frees(0)
    assert ledger.report(3) == {1}, "what was given up does not come back"


def test_a_partition_beyond_the_limit_is_no_permit():
    ledger = PermitLedger(2)
    ledger.assigned([1, 2, 3])
    assert (ledger.capacity, ledger.report(0)) == (1, {1, 2, 3})


def test_what_is_lost_is_not_used():
    ledger = PermitLedger(2)
    ledger.assigned([0, 1])
    ledger.lost()
    assert (ledger.capacity, ledger.report(2)) == (0, frozenset())


class Worker:
    def __init__(self, total: int) -> None:
        self.ledger = PermitLedger(total)
        self.running = 0

    def start(self) -> None:
        if self.running < self.ledger.capacity:
            self.running += 1


class Coordinator:
    """Hands a partition to another member when its owner has not reported it, or is gone; as KIP-848 has it."""

    def __init__(self, total: int, workers: list[Worker]) -> None:
        self.total, self.workers = total, workers
        self.owners: dict[int, Worker] = {}
        self.targets: dict[int, Worker] = {}

    def heartbeat(self, worker: Worker) -> None:
        reported = worker.ledger.report(worker.running)
        for permit, owner in list(self.owners.items()):
            if owner is worker and permit not in reported and self.targets.get(permit) is not worker:
                del self.owners[permit]
        granted = []
        for permit, target in self.targets.items():
            if target is worker and self.owners.get(permit, worker) is worker:
                self.owners[permit] = worker
                granted.append(permit)
        worker.ledger.assigned(granted)

    def kill(self, worker: Worker) -> None:
        worker.running = 0
        worker.ledger.lost()
        self.owners = {permit: owner for permit, owner in self.owners.items() if owner is not worker}


STEP = st.tuples(
    st.sampled_from(("beat", "beat", "start", "start", "end", "assign", "kill")), st.integers(0, 7)
)


@given(total=st.integers(1, 4), steps=st.lists(STEP, max_size=120))
def test_no_more_runs_than_permits_whatever_happens_and_none_is_lost(total, steps):
    workers = [Worker(total) for _ in range(3)]
    coordinator = Coordinator(total, workers)
    for kind, number in steps:
        worker = workers[number % 3]
        match kind:
            case "beat":
                coordinator.heartbeat(worker)
            case "start":
                worker.start()
            case "end":
                worker.running = max(0, worker.running - 1)
            case "assign":
                coordinator.targets[number % total] = worker
            case "kill":
                coordinator.kill(worker)
        assert sum(each.running for each in workers) <= total
        assert sum(each.ledger.capacity for each in workers) <= total

    for permit in range(total):
        coordinator.targets[permit] = workers[permit % 3]
    for each in workers:
        each.running = 0
    for _ in range(3):
        for each in workers:
            coordinator.heartbeat(each)
    assert sum(each.ledger.capacity for each in workers) == total


class HeartbeatAnswers:
    """In the place of the heartbeats. `fail` may raise, or return a code; those in `hangs` get no response."""

    def __init__(self) -> None:
        self.sent: list[float] = []
        self.fail: Callable[[int], int] = lambda number: 0
        self.hangs: set[int] = set()
        self.says_nothing: set[int] = set()
        """Without an assignment: it is as before."""
        self.grants: Callable[[int], list[int]] = lambda number: [0, 1]

    async def send(
        self, epoch: int, owned: Any, *, timeout_ms: float | None = None
    ) -> ConsumerGroupHeartbeatResponse:
        number = len(self.sent)
        self.sent.append(asyncio.get_running_loop().time())
        if number in self.hangs:
            await asyncio.sleep(30 if timeout_ms is None else timeout_ms / 1000)
            raise error_for(ErrorCode.REQUEST_TIMED_OUT)
        code = self.fail(number)
        granted = [TopicPartitions(topic_id=b"", partitions=self.grants(number))]
        await asyncio.sleep(0.001)
        return ConsumerGroupHeartbeatResponse(
            error_code=code,
            member_epoch=epoch + 1 if epoch == 0 else epoch,
            heartbeat_interval_ms=5_000,
            assignment=None if code or number in self.says_nothing else Assignment(topic_partitions=granted),
        )


def capacities(coordinator: HeartbeatAnswers, seconds: float, in_use: int = 0) -> list[int]:
    """What a worker's capacity was in turn."""

    async def story() -> list[int]:
        seen: list[int] = []
        permits = Permits(
            {"bootstrap.servers": "localhost:1"}, "g.t.limit", 2,
            in_use=lambda: in_use, changed=seen.append, lost=lambda: None,
        )  # fmt: skip
        member = permits._member
        member._send = coordinator.send  # type: ignore[method-assign]
        member._session_s, member._lease_s = 45, 30
        beating = asyncio.create_task(member._keep())
        await asyncio.sleep(seconds)
        beating.cancel()
        return seen

    return run_in_virtual_time(story())


def test_a_heartbeat_without_an_answer_costs_no_permits():
    coordinator = HeartbeatAnswers()
    coordinator.hangs = {10}
    assert capacities(coordinator, 120) == [2]


def test_an_answer_without_an_assignment_changes_nothing():
    coordinator = HeartbeatAnswers()
    coordinator.says_nothing = {5, 6}
    assert capacities(coordinator, 120) == [2]


def test_a_permit_that_is_to_be_given_up_and_is_in_use_costs_no_more_heartbeats():
    coordinator = HeartbeatAnswers()
    coordinator.grants = lambda number: [0, 1] if number < 10 else [0]
    assert capacities(coordinator, 120, in_use=2) == [2, 1]
    assert len(coordinator.sent) < 60, "one in five seconds, and a few more after each change"


def test_who_joins_has_nothing_to_lose_and_waits_as_long_as_any_request():
    coordinator = HeartbeatAnswers()
    coordinator.hangs = {0}
    assert capacities(coordinator, 120) == [2]
    assert coordinator.sent[1] > 30, "request.timeout.ms"


def test_a_coordinator_that_refuses_to_let_a_worker_join_is_not_asked_in_a_loop():
    coordinator = HeartbeatAnswers()
    coordinator.fail = lambda number: ErrorCode.FENCED_MEMBER_EPOCH if 10 <= number < 20 else 0
    assert capacities(coordinator, 120) == [2, 0, 2]
    refused = coordinator.sent[11:20]
    assert refused[-1] - refused[0] >= 8, "one second between two tries"


def test_heartbeats_go_on_after_an_error_that_nobody_has_thought_of():
    def fail(number: int) -> int:
        if number == 10:
            raise ValueError("a fault of ours")
        return 0

    coordinator = HeartbeatAnswers()
    coordinator.fail = fail
    assert capacities(coordinator, 120) == [2]
