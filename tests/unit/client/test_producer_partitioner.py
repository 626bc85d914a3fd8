"""Where records go: as Java's producer decides."""

import pytest

from headrace.client.producing.partitioner import StickyChoice, murmur2, partition_of_key


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_javas_numbers(key: bytes, expected: int) -> None:
    """The vectors of Kafka's own UtilsTest."""
    assert murmur2(key) == expected & 0xFFFFFFFF
    assert partition_of_key(key, 7) == (expected & 0x7FFFFFFF) % 7


def test_records_without_a_key_stay_together_until_their_batch_has_left() -> None:
    choice = StickyChoice(1_000, lambda below: 0)
    first = choice.choose([0, 1, 2], 10, has_left=True)
    assert [choice.choose([0, 1, 2], 10, has_left=False) for _ in range(5)] == [first] * 5
    assert choice.choose([0, 1, 2], 10, has_left=True) != first


def test_a_full_batch_moves_them_on() -> None:
    choice = StickyChoice(100, lambda below: below - 1)
    chosen = [choice.choose([0, 1], 60, has_left=False) for _ in range(4)]
    assert chosen == [1, 1, 0, 0]


def test_a_partition_that_lost_its_leader_is_left() -> None:
    choice = StickyChoice(1_000, lambda below: 0)
    choice.choose([0, 1], 10, has_left=True)
    assert choice.choose([1], 10, has_left=False) == 1
