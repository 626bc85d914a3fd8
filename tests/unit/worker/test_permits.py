"""Permits: whatever the order of heartbeats, runs and losses, all workers together have no more than there are."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.worker.permits import PermitLedger


def test_what_is_granted_may_be_used():
    ledger = PermitLedger(3)
    ledger.answered(1, [0, 2])
    assert (ledger.capacity, ledger.report(0)) == (2, {0, 2})


def test_what_is_taken_away_is_kept_while_it_is_in_use():
    ledger = PermitLedger(3)
    ledger.answered(1, [0, 1, 2])
    ledger.answered(1, [1])
    assert ledger.capacity == 1
    assert ledger.report(3) == {0, 1, 2}
    assert ledger.report(2) == {0, 1}
    assert ledger.gives_up
    assert ledger.report(1) == {1}
    assert not ledger.gives_up
    assert ledger.report(3) == {1}, "what was given up does not come back"


def test_an_answer_without_an_assignment_changes_nothing():
    ledger = PermitLedger(3)
    ledger.answered(1, [0])
    ledger.answered(2, None)
    assert (ledger.epoch, ledger.granted) == (2, {0})


def test_a_partition_beyond_the_limit_is_no_permit():
    ledger = PermitLedger(2)
    ledger.answered(1, [1, 2, 3])
    assert (ledger.capacity, ledger.report(0)) == (1, {1, 2, 3})


def test_what_is_lost_is_not_used():
    ledger = PermitLedger(2)
    ledger.answered(4, [0, 1])
    ledger.lost()
    assert (ledger.epoch, ledger.capacity, ledger.report(2)) == (0, 0, frozenset())


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
        worker.ledger.answered(worker.ledger.epoch + 1, granted)

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
