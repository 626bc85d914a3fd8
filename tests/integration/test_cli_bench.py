"""`headrace bench` runs the benchmarks of a checkout, and says where to find one."""

from pathlib import Path

import pytest

from headrace.cli.bench import CHECKOUT, run
from headrace.cli.failures import Refused


def test_outside_of_a_checkout_it_says_where_the_benchmarks_are(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="run it in a checkout"):
        run([], tmp_path)


def test_in_a_checkout_its_status_is_that_of_the_benchmarks(capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"], CHECKOUT) == 0
    assert "--quick" in capfd.readouterr().out
    assert run(["--no-such-option"], CHECKOUT) == 2
