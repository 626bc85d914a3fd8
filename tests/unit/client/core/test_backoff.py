"""Waits that double up to a bound."""

from headrace.client.core.backoff import Backoff


def test_waits_double_up_to_the_bound_and_start_again_after_success() -> None:
    backoff = Backoff(100, 500, lambda: 0.5)
    assert [backoff.after_failure() for _ in range(4)] == [100, 200, 400, 500]
    assert not backoff.is_reset
    backoff.reset()
    assert backoff.is_reset
    assert backoff.after_failure() == 100


def test_waits_are_spread_by_a_fifth_to_each_side() -> None:
    assert Backoff(100, 500, lambda: 0.0).after_failure() == 80
    assert Backoff(100, 500, lambda: 1.0).after_failure() == 120
