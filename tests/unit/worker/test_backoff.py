"""Back-off: delays grow, stop growing, and are moved by chance."""

import pytest

from headrace.worker.backoff import Backoff


def test_delays_grow_by_the_factor_up_to_the_most():
    backoff = Backoff(first=1.0, factor=2.0, most=60.0, jitter=0)

    assert [backoff.delay_ms(attempts, 0.5) for attempts in (1, 2, 3, 6, 7, 8)] == [
        1_000, 2_000, 4_000, 32_000, 60_000, 60_000,
    ]  # fmt: skip


def test_jitter_moves_a_delay_both_ways_by_its_share():
    backoff = Backoff(first=10.0, most=10.0, jitter=0.2)

    assert backoff.delay_ms(1, 0.0) == 8_000
    assert backoff.delay_ms(1, 0.5) == 10_000
    assert backoff.delay_ms(1, 0.999_999) == pytest.approx(12_000, abs=1)


def test_a_thousand_attempts_wait_the_most_and_overflow_nothing():
    assert Backoff(first=1.0, factor=10.0, most=60.0, jitter=0).delay_ms(5_000, 0.5) == 60_000


def test_no_wait_at_all_is_possible():
    assert Backoff(first=0, most=0).delay_ms(3, 0.9) == 0


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"first": -1}, "first must be .*, got -1"),
        ({"first": float("nan")}, "first must be .*, got nan"),
        ({"factor": 0.5}, "factor must be .*, got 0.5"),
        ({"first": 5, "most": 1}, r"most must be finite and >= first \(5\), got 1"),
        ({"most": float("inf")}, "most must be finite .*, got inf"),
        ({"jitter": 2}, "jitter must be .*, got 2"),
        ({"tries": 0}, "tries must be .*, got 0"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given, named):
    with pytest.raises(ValueError, match=named):
        Backoff(**given)
