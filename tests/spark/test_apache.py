"""The source on a real Apache Kafka: drained in both modes, outcomes of single records, and killed with -9.

Both brokers under the driver alone are in test_driver.py; here are Spark and a whole query. On Apache Kafka the group
gives partitions when its timers say so, and a restarted reader must not wait out its dead self (45 s).
"""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.spark import process
from headrace.testing import ApacheKafka
from tests.spark.conftest import Effects, Queue, drain, make_queue, wait_for
from tests.spark.test_crash import RECORDS, Program
from tests.spark.test_outcomes_on_spark import judge, make_letters, read_letters, run

pytestmark = pytest.mark.timeout(240)
COMMIT_KILLS = [
    "acquired@1",
    "acquired@1 kept",
    "logged@1",
    "task@1 kept",
    "sink@1",
    "unsettled@1 kept",
    "settled@2",
]
THOROUGH = pytest.mark.thorough
HANDOFF_KILLS = ["acquired@1 kept", "logged@1", "handed_off@1 kept", "task@2", "sink@2 kept", "settled@3"]
"""With locks lost and with locks kept, in turn: each is tried for every step on our broker, in test_crash.py."""


@pytest.fixture
def apache_queue(apache: ApacheKafka, unique: str, tmp_path: Path) -> Queue:
    return make_queue(apache.bootstrap_servers, unique, tmp_path)


@pytest.mark.parametrize("acknowledge", ["commit", "handoff"])
def test_a_queue_is_drained_once_and_settled(
    spark: SparkSession, apache_queue: Queue, effects: Effects, acknowledge: str
) -> None:
    apache_queue.send(6_000)  # more than the window: 2,000 locks a partition
    stream = apache_queue.stream(spark, acknowledge=acknowledge, maxRecordsPerTrigger=2_500)
    drain(stream, effects, apache_queue)
    assert effects.numbers == list(range(6_000))
    assert max(map(len, effects.batches.values())) <= 2_500
    wait_for(lambda: apache_queue.lag() == 0)


def test_outcomes_of_single_records_are_carried_out(
    spark: SparkSession, apache_queue: Queue, effects: Effects
) -> None:
    apache_queue.send(100)
    letters = make_letters(apache_queue)

    def handle(batch: DataFrame, batch_id: int) -> DataFrame:
        effects(batch, batch_id)
        return judge(batch)

    run(process(apache_queue.stream(spark, deadLetterTopic=letters), handle))
    deliveries: dict[int, list[int]] = {}
    for row in effects.rows:
        deliveries.setdefault(int(row["value"]), []).append(row["deliveryCount"])
    assert deliveries == {each: [1, 2] if each % 10 == 7 else [1] for each in range(100)}
    rejected = [each for each in range(100) if each % 10 == 3]
    assert sorted(int(value) for value, _ in read_letters(apache_queue, letters)) == rejected
    wait_for(lambda: apache_queue.lag() == 0)


@pytest.mark.timeout(1_200)
@pytest.mark.parametrize(
    ("acknowledge", "kills", "options"),
    [
        pytest.param(
            "commit", COMMIT_KILLS, {"has_outcomes": True}, id="commit-with-outcomes", marks=THOROUGH
        ),
        pytest.param("handoff", HANDOFF_KILLS, {"sink": "parquet"}, id="handoff-parquet", marks=THOROUGH),
        pytest.param("commit", ["acquired@1", "unsettled@1 kept"], {"has_outcomes": True}, id="commit"),
    ],
)
def test_every_record_has_one_effect_wherever_the_query_is_killed(
    apache_queue: Queue, acknowledge: str, kills: list[str], options: dict[str, Any]
) -> None:
    apache_queue.send(RECORDS)
    with Program(apache_queue, acknowledge, **options) as program:
        program.run_to_the_end(kills)
        assert program.effects() == [(number, 1) for number in range(RECORDS)]
        wait_for(lambda: apache_queue.lag() == 0)
