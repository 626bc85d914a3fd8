"""The talk's pipeline runs as its first lines say, and its account holds. (The other examples: tests/integration.)"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
    assert "7 dead letters: value is not a JSON object of the schema" in ran.stdout
    assert ran.stdout.rstrip().endswith("the account holds")
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"
