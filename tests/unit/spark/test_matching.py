"""Outcomes put beside a micro-batch: the time it takes. (What comes out: tests/property/test_spark_matching.py.)"""

import pytest

from headrace.client.delivery import AcknowledgeType
from headrace.spark.matching import match
from headrace.spark.outcomes import Outcome
from headrace.spark.runs import Run, RunSet

RECORDS = 60_000
"""Of them a quadratic way would have some thousand million pairs to look at: minutes. It takes less than a second."""

PLANNED = RunSet.of([(("orders", 0), Run(0, 2 * RECORDS, 1))])


def reject(offset: int, reason: str = "") -> Outcome:
    return Outcome("orders", 0, offset, offset, 1, AcknowledgeType.REJECT, reason)


@pytest.mark.timeout(30)
def test_many_scattered_outcomes_do_not_hold_up_the_heartbeats() -> None:
    said = [reject(2 * number) for number in range(RECORDS)]
    assert match(said, PLANNED) == (said, RunSet())


@pytest.mark.timeout(30)
def test_many_records_that_are_named_twice_do_not_hold_up_the_heartbeats() -> None:
    said = [reject(2 * number, reason) for number in range(RECORDS) for reason in ("first", "second")]
    assert match(said, PLANNED) == (said[1::2], RunSet())


@pytest.mark.timeout(30)
def test_many_runs_of_a_micro_batch_do_not_hold_up_the_heartbeats() -> None:
    planned = RunSet.of([(("orders", 0), Run(2 * number, 2 * number, 1)) for number in range(RECORDS)])
    whole = Outcome("orders", 0, 0, 2 * RECORDS, 1, AcknowledgeType.REJECT)
    meant, ignored = match([whole], planned)
    assert (len(meant), ignored.record_count) == (RECORDS, RECORDS + 1)
