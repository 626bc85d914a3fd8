"""Which part of a micro-batch is run after it has failed, and which failures count."""

import json
from pathlib import Path

import pytest

from headrace.client.delivery import AcknowledgeType
from headrace.spark.checkpoint import brings_one_source
from headrace.spark.dividing import Division
from headrace.spark.errors import OptionError, OutcomeError
from headrace.spark.offset import AcquiredOffset
from headrace.spark.options import SourceOptions
from headrace.spark.outcomes import Failures, Outcome, OutcomeLog
from headrace.spark.processing import error_text, is_about_records
from headrace.spark.runs import Run, RunSet

PLACE = ("orders", 0)
GIVEN = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders", "kafka.group.id": "g"}


def records(first: int, last: int) -> RunSet:
    return RunSet.of([(PLACE, Run(first, last, 1))])


def whole(count: int) -> Division:
    return Division.whole(AcquiredOffset(7, "g", "m", {"orders": "id"}, records(0, count - 1)))


def test_a_micro_batch_is_halved_when_it_has_failed_often_enough_and_then_at_each_failure() -> None:
    division = whole(9)
    assert division.after(Failures(2, "no"), 3, is_part=False) is division
    half = division.after(Failures(3, "no"), 3, is_part=False)
    assert half.given == records(0, 3)
    assert half.after(Failures(3, "no"), 3, is_part=False) is half
    assert half.after(Failures(4, "no"), 3, is_part=False).given == records(0, 1)


def test_what_is_left_of_a_divided_micro_batch_is_halved_at_its_first_failure() -> None:
    assert whole(8).after(Failures(1, "no"), 3, is_part=True).given == records(0, 3)


def test_a_record_is_rejected_when_it_has_failed_often_enough_by_itself() -> None:
    division = whole(2).after(Failures(3, "no"), 3, is_part=False)
    assert division.after(Failures(5, "no"), 3, is_part=False) is division
    last = division.after(Failures(6, "why"), 3, is_part=False)
    assert (last.given, last.kept) == (RunSet(), records(0, 0))
    assert last.outcomes() == [Outcome("orders", 0, 0, 0, 1, AcknowledgeType.REJECT, "why")]
    assert last.after(Failures(20, "no"), 3, is_part=False) is last


def test_a_division_is_the_same_when_it_was_written_down() -> None:
    division = whole(2).after(Failures(3, "no"), 3, is_part=False).after(Failures(6, "why"), 3, is_part=False)
    assert Division.from_json(json.loads(json.dumps(division.to_json()))) == division


def test_failures_are_counted_by_micro_batch_until_another_one_is_logged(tmp_path: Path) -> None:
    log = OutcomeLog(tmp_path)
    log.add_failure(7, "first")
    log.add_failure(7, "x" * 5_000)
    log.clear()
    assert log.failures(7) == Failures(2, "x" * 1_000)
    assert log.failures(8) == Failures()
    log.clear_failures()
    assert log.failures(7) == Failures()


def test_a_damaged_count_is_named(tmp_path: Path) -> None:
    (tmp_path / "failures-7.json").write_text("{")
    with pytest.raises(OutcomeError, match=r"failures-7.json is damaged .* delete the file"):
        OutcomeLog(tmp_path).failures(7)


def test_the_option_needs_a_place_for_what_it_rejects() -> None:
    with pytest.raises(OptionError, match="maxBatchFailures=3 needs deadLetterTopic"):
        SourceOptions.parse({**GIVEN, "maxBatchFailures": "3", "checkpointLocation": "/checkpoint"})


@pytest.mark.parametrize(
    ("before", "now", "is_one"),
    [
        (None, ['{"seq":1}', "-"], True),
        (None, ['{"seq":1}', "17"], False),
        (['{"seq":1}', '{"seq":1}'], ['{"seq":2}', '{"seq":1}'], True),
        (["a:17", 'b:{"seq":1}'], ["a:18", 'b:{"seq":2}'], False),
    ],
)
def test_how_many_sources_have_records_in_a_micro_batch(
    tmp_path: Path, before: list[str] | None, now: list[str], is_one: bool
) -> None:
    for name, lines in (("6", before), ("7", now)):
        if lines is not None:
            (tmp_path / name).write_text("\n".join(["v1", "{}", *lines]))
    assert brings_one_source(tmp_path / "7") is is_one


UDF_ERROR = """[UDF_ERROR.ENV_ERROR] An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "program.py", line 3, in <lambda>
    int(value)
ValueError: invalid literal for int() with base 10: b'stone'

	at org.apache.spark.api.python.BasePythonRunner"""


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("cannot do 3\nand more"), "ValueError: cannot do 3"),
        (KeyError(), "KeyError"),
        (
            RuntimeError(
                "An error occurred while calling o1.save.\n: java.io.IOException: no\n\tat java.base"
            ),
            "java.io.IOException: no",
        ),
        (RuntimeError(UDF_ERROR), "ValueError: invalid literal for int() with base 10: b'stone'"),
    ],
)
def test_the_reason_is_what_was_raised(error: Exception, text: str) -> None:
    assert error_text(error) == text


@pytest.mark.parametrize(
    "text",
    [
        "[SPARK_JOB_CANCELLED] Job 7 cancelled part of cancelled job group 9c1e",
        "Job 7 cancelled because SparkContext was shut down",
        "An error occurred while calling o1.collectToPython.\n: java.lang.InterruptedException\n\tat java.base",
        'File "/lib/headrace/spark/executor.py", line 9, in read\nheadrace.spark.errors.DataLossError: gone',
    ],
)
def test_a_query_that_is_stopped_or_cannot_read_has_not_failed_on_a_record(text: str) -> None:
    error = ValueError("wrapped by the function")
    error.__cause__ = RuntimeError(text)
    assert not is_about_records(error)
    assert not is_about_records(RuntimeError(text))
    assert is_about_records(RuntimeError(UDF_ERROR))
