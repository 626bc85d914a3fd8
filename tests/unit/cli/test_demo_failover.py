"""The failover act counts a record whose acceptance the killed broker did not answer once, whether it held or not."""

from headrace.cli.demo.failover_story import FailoverView


def test_an_unanswered_acceptance_that_held_counts_at_the_end() -> None:
    seen = FailoverView()
    seen.did(1, is_confirmed=True, is_again=False)
    seen.did(2, is_confirmed=False, is_again=False)
    assert seen.accepted == [1]
    seen.settle()
    assert seen.accepted == [1, 2]


def test_an_unanswered_acceptance_that_did_not_hold_counts_when_the_record_comes_again() -> None:
    seen = FailoverView()
    seen.did(2, is_confirmed=False, is_again=False)
    seen.did(2, is_confirmed=True, is_again=True)
    seen.settle()
    assert (seen.accepted, len(seen.again)) == ([2], 1)
