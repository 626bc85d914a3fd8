"""Waits that double up to a bound, spread by numbers that a seed decides."""

from headrace.client.core.backoff import Backoff, Jitter
from tests.unit.client.core.test_member import Half


def test_waits_double_up_to_the_bound_and_start_again_after_success() -> None:
    backoff = Backoff(100, 500, Half())
    assert [backoff.after_failure() for _ in range(4)] == [100, 200, 400, 500]
    assert not backoff.is_reset
    backoff.reset()
    assert backoff.is_reset
    assert backoff.after_failure() == 100


def test_waits_are_spread_by_a_fifth_to_each_side() -> None:
    jitter = Jitter(1)
    waits = [Backoff(1_000, 5_000, jitter).after_failure() for _ in range(1_000)]
    assert 800 <= min(waits) < 820
    assert 1_180 < max(waits) <= 1_200
    assert len(set(waits)) > 200


def test_the_same_seed_gives_the_same_waits() -> None:
    def waits(seed: int) -> list[float]:
        jitter = Jitter(seed)
        return [jitter.fraction() for _ in range(10)]

    assert waits(7) == waits(7) != waits(8)
