"""The talk's pipeline runs as its first lines say, and its account holds. (The other examples: tests/integration.)"""

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from headrace import Admin, Broker
from headrace.testing.java import find_java

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "spark_orders.py"
WAIT_S = 170


@pytest.mark.timeout(180)
def test_orders_are_scored_once_or_lie_in_the_dead_letter_topic_with_the_cause(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        cwd=tmp_path,
        env={**os.environ, "JAVA_HOME": str(find_java().home)},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr[-5_000:]
    assert "5 dead letters: the model does not know the customer" in ran.stdout
    assert "7 dead letters: value is not one JSON object" in ran.stdout
    assert ran.stdout.rstrip().endswith("the account holds")
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"


@pytest.mark.timeout(180)
def test_the_model_sees_each_delivery_once(
    spark: SparkSession, broker: Broker, unique: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing is one action and judging another: each would run the model."""
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    example = import_module("spark_orders")
    monkeypatch.setattr(example, "ORDERS", 40)
    seen = tmp_path / "seen"

    def score(customers: pd.Series, amounts: pd.Series) -> pd.Series:
        with seen.open("a") as file:
            file.write("x" * len(amounts))
        return amounts * 0

    monkeypatch.setattr(example, "fraud_score", score)
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic(unique, partitions=2)
        admin.create_topic(f"{unique}.dead", partitions=1)
    example.send_orders(broker.bootstrap_servers, unique)
    example.score_orders(spark, broker.bootstrap_servers, unique, f"{unique}.dead", tmp_path)
    deliveries = 40 + example.UNKNOWN + 2 * example.EARLY
    assert len(seen.read_text()) == deliveries
