"""`make test` and `make verify` together run every test once, and CI runs both."""

import re

import pytest

from tests import tiers
from tests.tidy.tree import REPOSITORY


def commands(target: str) -> str:
    rule = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert rule is not None, f"the Makefile has no target {target}"
    return rule[1]


def test_what_make_test_leaves_out_is_what_make_verify_runs() -> None:
    assert 'tools/run_tests.py --at-once=3 -m "not verify" $(AGAIN)\n' in commands("test")
    assert "tools/run_tests.py -m verify $(AGAIN)\n" in commands("verify")


def test_ci_runs_both() -> None:
    script = (REPOSITORY / ".ci" / "run").read_text()
    assert re.findall(r"^make (\w+) AGAIN=--again$", script, re.MULTILINE) == ["test", "verify"]


def test_every_line_of_the_list_names_a_file_or_a_folder_and_stands_there_once() -> None:
    lines = tiers.patterns()
    assert len(set(lines)) == len(lines)
    for line in lines:
        where = line.partition("::")[0].partition("*")[0]
        assert (REPOSITORY / where).exists(), f"{line}: {where} does not exist"


@pytest.mark.parametrize(
    ("line", "is_named"),
    [
        ("tests/web", True),
        ("tests/web/test_api.py", True),
        ("tests/web/test_api.py::test_it", True),
        ("tests/web/test_api.py::test_it[apache-1]", True),
        ("tests/web/test_api.py::*1]", True),
        ("tests/web/*[apache*", True),
        ("tests/web/*[headrace*", False),
        ("tests/web/test_api.py::test_i", False),
        ("tests/we", False),
    ],
)
def test_a_line_names_what_is_inside_it_and_stars_stand_for_anything(line: str, is_named: bool) -> None:
    assert bool(tiers.rule(line).match("tests/web/test_api.py::test_it[apache-1]")) is is_named


def test_a_line_that_names_no_test_is_found() -> None:
    line = "tests/cluster"
    assert line in tiers.patterns()
    assert line in tiers.unused(["tests/cluster_of_one.py::test_it"])
    assert line not in tiers.unused(["tests/cluster/test_locks.py::test_it"])
    assert line not in tiers.unused(["tests/web/test_api.py::test_it"])
