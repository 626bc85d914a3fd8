"""The examples run as their first lines say, and their accounts hold. (The programs in the pages: tests/docs.)"""

import subprocess
import sys
from pathlib import Path

import pytest

from headrace import Broker

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ADAPTERS = ("with_celery", "with_django", "with_dramatiq", "with_taskiq")
WAIT_S = 110


def run(example: str, *arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(EXAMPLES / f"{example}.py"), *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=WAIT_S)


@pytest.mark.parametrize("example", ["images", "emails", "fraud", *ADAPTERS])
def test_an_example_holds_its_account(example, tmp_path):
    ran = run(example, cwd=tmp_path)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.rstrip().endswith("the account holds")
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"


def test_an_example_takes_a_broker_that_is_there_and_can_run_on_it_again(tmp_path):
    with Broker(settings={"num.partitions": 3}) as broker:
        for _ in range(2):
            ran = run("fraud", "-b", broker.bootstrap_servers, cwd=tmp_path)
            assert ran.returncode == 0, ran.stdout + ran.stderr


def test_an_account_that_does_not_hold_is_an_error(tmp_path):
    program = "from support import account\naccount(one_is_two=1 == 2, one_is_one=1 == 1)\n"
    ran = subprocess.run(
        [sys.executable, "-c", program], cwd=EXAMPLES, capture_output=True, text=True, timeout=WAIT_S
    )

    assert ran.returncode == 1
    assert ran.stdout.strip() == "the account does NOT hold: one is two"
