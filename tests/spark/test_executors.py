"""Executors and tasks that fail on a standalone cluster: every record has one effect, and the group has no lag.

Effects are rows in Parquet, written by Spark's own file sink. Every attempt of a task also writes down what it read, so
that the tests can tell that a task ran again, or twice at the same time, and that each time it saw the same records.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace import Broker
from tests.spark.conftest import Queue, make_queue
from tests.spark.driving import REPOSITORY, Rows, submit
from tests.spark.standalone import HOSTS, OF_HEADRACE, OF_SPARK, python_with, standalone_cluster

pytestmark = pytest.mark.timeout(300)
RECORDS = 1_500


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python_with(tmp_path_factory.mktemp("python") / "needs", *OF_SPARK, *OF_HEADRACE)


@pytest.fixture(scope="module")
def cluster(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with standalone_cluster(tmp_path_factory.mktemp("standalone"), python) as address:
        yield address


@pytest.fixture
def filled(broker: Broker, unique: str, tmp_path: Path) -> Queue:
    queue = make_queue(broker.bootstrap_servers, unique, tmp_path)
    queue.send(RECORDS)
    queue.options = {"maxRecordsPerTrigger": "500", "minPartitions": "4"}
    return queue


CONF = {"spark.executorEnv.PYTHONPATH": str(REPOSITORY / "src")}


@dataclass(frozen=True)
class Attempt:
    """One running of a task: on which host, and what it saw until it ended or was ended."""

    host: str
    seen: list[int]


def tasks(queue: Queue) -> list[list[Attempt]]:
    """The attempts of each task, the one that saw most last. A task is known by the first record it saw."""
    found = defaultdict(list)
    for mark in (queue.folder / "marks").glob("[0-9]*"):
        place, _, lines = mark.read_text().partition("\n")
        seen = [int(word) for word in lines.split()]
        (host,) = set(HOSTS) & set(Path(place).parts)
        if seen:
            found[seen[0]].append(Attempt(host, seen))
    return [sorted(attempts, key=lambda each: len(each.seen)) for attempts in found.values()]


def saw_the_same(attempts: list[Attempt]) -> bool:
    """As far as each came."""
    longest = attempts[-1].seen
    return all(longest[: len(each.seen)] == each.seen for each in attempts)


def executors_started(rows: Rows) -> int:
    """By the folders that workers made for them: <cluster>/<host>/<application>/<number>."""
    _, application, _, cluster = [Path(rows[0]["place"]), *Path(rows[0]["place"]).parents][:4]
    return len([*cluster.glob(f"*/{application.name}/[0-9]*")])


@pytest.mark.parametrize("acknowledge", ["commit", pytest.param("handoff", marks=pytest.mark.thorough)])
def test_a_failed_task_a_killed_python_and_a_killed_executor_leave_one_effect_of_each_record(
    filled: Queue, cluster: str, python: Path, acknowledge: str
) -> None:
    filled.options["acknowledge"] = acknowledge
    faults = {240: "raise", 740: "kill_python", 1240: "kill_executor"}
    rows = submit(filled, cluster, python, conf=CONF, faults=faults)
    by_number = {int(row["value"]): row for row in rows}
    assert len(by_number) == len(rows) == RECORDS
    for number in faults:
        assert by_number[number]["attempt"] > 0, f"{faults[number]} did not happen"
    again = [attempts for attempts in tasks(filled) if len(attempts) > 1]
    assert len(again) >= len(faults)
    assert all(map(saw_the_same, again))
    assert executors_started(rows) == 3, "a new executor comes for the one that was killed"


@pytest.mark.thorough
def test_a_speculative_copy_of_a_straggler_runs_on_the_other_host_and_adds_no_effect(
    filled: Queue, cluster: str, python: Path
) -> None:
    straggler = 740
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "100ms",
    }
    rows = submit(filled, cluster, python, conf=CONF | speculation, faults={straggler: "straggle"})
    assert len(rows) == RECORDS
    (kept,) = [row for row in rows if int(row["value"]) == straggler]
    assert kept["attempt"] == 1, "no speculative copy ran"
    (attempts,) = [each for each in tasks(filled) if straggler in each[-1].seen]
    assert {each.host for each in attempts} == set(HOSTS)
    assert saw_the_same(attempts)
