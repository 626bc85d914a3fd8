"""Producer ids are never given out twice. With an allocator that remembers what it gave."""

from headrace.broker.transactions.producer_ids import BLOCK, ProducerIds


class Allocator:
    def __init__(self) -> None:
        self.next = 0
        self.calls = 0

    def __call__(self, count: int) -> range:
        self.calls += 1
        first, self.next = self.next, self.next + count
        return range(first, first + count)


def test_ids_rise_one_by_one_across_blocks() -> None:
    allocate = Allocator()
    ids = ProducerIds(allocate)
    assert [ids.draw() for _ in range(BLOCK + 2)] == list(range(BLOCK + 2))
    assert allocate.calls == 2


def test_nothing_is_allocated_before_it_is_needed() -> None:
    allocate = Allocator()
    ProducerIds(allocate)
    assert allocate.calls == 0


def test_a_restart_never_repeats_an_id() -> None:
    allocate = Allocator()
    before = {ProducerIds(allocate).draw() for _ in range(3)}
    after = ProducerIds(allocate)
    assert before.isdisjoint({after.draw() for _ in range(3)})
