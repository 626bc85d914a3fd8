"""What the processes that Spark starts import: each starts anew, so what they do not need costs every query."""

import subprocess
import sys

import pytest

DRIVER = {"headrace.spark.driver", "headrace.client.admin", "headrace.client.member"}
OTHERS = {"headrace.spark.processing", "headrace.spark.sink", "headrace.spark.tables", "pyarrow.compute"}


@pytest.mark.parametrize(
    ("module", "needed", "not_needed"),
    [
        ("pyspark_headrace", {"headrace.spark.reader"}, DRIVER | OTHERS | {"headrace.spark.executor"}),
        ("headrace.spark.executor", {"headrace.client.cluster"}, DRIVER | OTHERS),
        ("headrace.spark.driver", DRIVER, OTHERS),
    ],
    ids=["to find, create and plan the source", "a task's worker", "the reader"],
)
def test_a_process_imports_only_what_it_needs(module: str, needed: set[str], not_needed: set[str]) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    loaded = set(output.split())
    assert needed <= loaded
    assert not loaded & not_needed
