"""Waits that double up to a bound, spread by numbers that a seed decides."""

import pytest

from headrace.base.backoff import Jitter, RetryBackoff, backoff


def test_waits_double_up_to_the_bound_and_start_again_after_success() -> None:
    retry = RetryBackoff(100, 500, lambda: 0.5)
    assert [retry.after_failure() for _ in range(4)] == [100, 200, 400, 500]
    assert retry.failures == 4
    retry.reset()
    assert retry.failures == 0
    assert retry.after_failure() == 100


def test_waits_are_spread_by_a_fifth_to_each_side() -> None:
    jitter = Jitter(1)
    waits = [RetryBackoff(1_000, 5_000, jitter.fraction).after_failure() for _ in range(1_000)]
    assert 800 <= min(waits) < 820
    assert 1_180 < max(waits) <= 1_200
    assert len(set(waits)) > 200


def test_the_same_seed_gives_the_same_waits() -> None:
    def waits(seed: int) -> list[float]:
        jitter = Jitter(seed)
        return [jitter.fraction() for _ in range(10)]

    assert waits(7) == waits(7) != waits(8)


def test_there_is_no_wait_beyond_the_deadline() -> None:
    retry = RetryBackoff(100, 500, lambda: 0.5, deadline_s=10.0)
    assert retry.wait_s(9.9) == 0.1
    assert retry.wait_s(9.9) is None


@pytest.mark.parametrize(("chance", "expected"), [(0.0, 45.0), (0.5, 90.0), (1.0, 135.0)])
def test_factor_and_jitter_may_be_others(chance: float, expected: float) -> None:
    assert backoff(10, 1_000, 2, chance, factor=3.0, jitter=0.5) == expected


def test_thousands_of_failures_wait_no_longer_than_the_bound() -> None:
    assert backoff(0.5, 60.0, 100_000, 0.5) == 60.0
