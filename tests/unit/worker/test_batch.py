"""Batches: what a declaration may say, and what a function may return."""

import asyncio

import pytest

from headrace.worker.backoff import Backoff
from headrace.worker.batch import Batch, BatchResultError, batch_outcome, spread
from headrace.worker.outcomes import DONE, Reject, Retry, TaskResult, outcome_of
from headrace.worker.task import build_options, read_signature


@pytest.mark.parametrize("most", [0, -1, 10_001, 1.5, True, "32"])
def test_a_batch_has_one_record_or_more(most):
    with pytest.raises(ValueError, match=r"Batch: max must be a whole number from 1 to 10000, got"):
        Batch(max=most)


@pytest.mark.parametrize("wait", [-0.1, float("nan"), float("inf"), 3_601])
def test_a_wait_is_bounded(wait):
    with pytest.raises(ValueError, match=r"Batch: wait must be from 0 to 3600 seconds, got"):
        Batch(wait=wait)


class TestOutcomes:
    def test_none_is_all_done(self):
        assert spread(batch_outcome(None, 3, "f"), 3) == (DONE, DONE, DONE)

    def test_one_outcome_for_each(self):
        each = spread(batch_outcome([None, Retry(after=3), Reject("no"), ValueError("x")], 4, "f"), 4)
        assert [one.result for one in each] == [
            TaskResult.DONE,
            TaskResult.RETRY_ASKED,
            TaskResult.REJECTED,
            TaskResult.FAILED,
        ]
        assert each[1].retry_after_s == 3
        assert not any(one.is_shared for one in each)

    def test_what_gather_returns_can_be_returned(self):
        (one,) = spread(batch_outcome([asyncio.CancelledError()], 1, "f"), 1)
        assert one.result is TaskResult.FAILED

    @pytest.mark.parametrize(
        ("returned", "words"),
        [
            ([None], "mail.send returned 1 outcomes for 2 records; return a list of 2 outcomes"),
            ([None] * 3, "mail.send returned 3 outcomes for 2 records"),
            ([], "mail.send returned 0 outcomes for 2 records"),
            ([None, "ok"], "mail.send returned 'ok' as outcome 1"),
            ([None, Reject], "mail.send returned <class .*Reject'> as outcome 1"),
            ([True, None], "mail.send returned True as outcome 0"),
            ("ab", "mail.send returned 'ab'; return"),
            (2, "mail.send returned 2; return"),
            ({0: None, 1: None}, "mail.send returned {0: None, 1: None}; return"),
            ((each for each in (None, None)), "mail.send returned <generator"),
            (["x" * 500, None], "…"),
        ],
    )
    def test_anything_else_is_an_error(self, returned, words):
        with pytest.raises(BatchResultError, match=words):
            batch_outcome(returned, 2, "mail.send")

    def test_a_failed_batch_does_not_say_which_record_failed(self):
        each = spread(outcome_of(ValueError("x")), 2)
        assert [(one.result, one.is_shared) for one in each] == [(TaskResult.FAILED, True)] * 2
        assert not spread(outcome_of(ValueError("x")), 1)[0].is_shared

    def test_a_raised_reject_rejects_one_record_but_not_one_of_several(self):
        assert [one.result for one in spread(outcome_of(Reject("no")), 1)] == [TaskResult.REJECTED]
        each = spread(outcome_of(Reject("no")), 2)
        assert [(one.result, one.retry_after_s) for one in each] == [(TaskResult.RETRY_ASKED, 0)] * 2


class TestSignature:
    def test_the_body_is_the_element_of_the_list(self):
        def bodies(bodies: list[int]) -> None: ...

        def both(bodies: "list[dict[str, int]]", deliveries: "list[Delivery]") -> None: ...  # noqa: F821

        def unnamed(bodies: list[bytes], deliveries) -> None: ...

        assert read_signature(bodies, is_batch=True) == (int, False)
        assert read_signature(both, is_batch=True) == (dict[str, int], True)
        assert read_signature(unnamed, is_batch=True) == (bytes, True)

    @pytest.mark.parametrize("annotation", [int, list, dict[str, int], "list[int] | None"])
    def test_a_function_that_takes_no_list_is_refused(self, annotation):
        def function(body): ...

        function.__annotations__["body"] = annotation
        with pytest.raises(TypeError, match=r"batch=: its first parameter .* not a list; declare it as"):
            read_signature(function, is_batch=True)

    def test_a_second_parameter_that_is_no_delivery_is_refused(self):
        def function(bodies: list[int], more: list[int]) -> None: ...

        with pytest.raises(TypeError, match="is not a delivery"):
            read_signature(function, is_batch=True)

    @pytest.mark.parametrize(
        ("concurrency", "batch", "words"),
        [(16, 32, "a Batch or None"), (100, Batch(max=10_000), "at most 100000 divided by")],
    )
    def test_options_that_are_not_possible_are_refused(self, concurrency, batch, words):
        def function(bodies: list[int]) -> None: ...

        with pytest.raises(ValueError, match=words):
            build_options(
                function, "t", concurrency=concurrency, retries=Backoff(), dead_letter=None, timeout=None,
                key_order=False, pool=None, waiting=10, batch=batch,
            )  # fmt: skip
