"""How the results of other projects' suites are read, judged and kept."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.suites import __main__ as runner
from tests.suites import franz_go, python_suites
from tests.suites.jars import Module, ivy_module
from tests.suites.results import Excuse, Outcome, Result, SuiteRun, excused, excuses, read_lines, stale


def result(test: str, outcome: Outcome, reason: str = "") -> Result:
    return Result("Some", test, outcome, 1.0, reason)


RUN = SuiteRun(
    "suite",
    "Some 1.0",
    (
        result("testGood", Outcome.PASSED),
        result("testTwice", Outcome.FAILED, "one"),
        result("testTwice[2]", Outcome.FAILED, "two"),
        result("testInside", Outcome.NOT_APPLICABLE, "looks inside"),
    ),
)


def test_a_listed_failure_is_not_applicable_with_the_lists_reason() -> None:
    judged = excused(RUN, [Excuse("suite", "Some.testTwice", "because")])
    assert [one.test for one in judged.of(Outcome.FAILED)] == ["testTwice[2]"]
    assert {one.test: one.reason for one in judged.of(Outcome.NOT_APPLICABLE)} == {
        "testTwice": "because",
        "testInside": "looks inside",
    }


def test_a_pattern_covers_the_variants_of_a_test() -> None:
    assert excused(RUN, [Excuse("suite", "Some.testTwice*", "because")]).of(Outcome.FAILED) == []
    assert excused(RUN, [Excuse("suite", "Some.testTwice[2]", "because")]).of(Outcome.FAILED) == [
        RUN.results[1]
    ]


def test_the_list_of_another_suite_excuses_nothing() -> None:
    assert len(excused(RUN, [Excuse("other", "*", "because")]).of(Outcome.FAILED)) == 2


def test_an_entry_whose_tests_passed_is_stale() -> None:
    good = Excuse("suite", "Some.testGood", "because")
    needed = Excuse("suite", "Some.testTwice", "because")
    elsewhere = Excuse("other", "Some.testGood", "because")
    not_run = Excuse("suite", "Another.test", "because")
    assert stale(RUN, [good, needed, elsewhere, not_run]) == [good]


def test_every_entry_of_the_list_names_a_suite_and_a_reason() -> None:
    for entry in excuses():
        assert entry.suite in runner.SUITES
        assert entry.reason.endswith(".")


def test_results_are_kept_beside_those_of_other_suites(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"older": {"version": "0"}}))
    runner.keep(RUN, path)
    kept = json.loads(path.read_text())
    assert kept["older"] == {"version": "0"}
    assert kept["suite"]["groups"] == {"Some": {"passed": 1, "failed": 2, "not applicable": 1}}
    assert kept["suite"]["failed"] == {"Some.testTwice": "one", "Some.testTwice[2]": "two"}
    assert kept["suite"]["not applicable"] == {"looks inside": ["Some.testInside"]}


def test_a_suite_that_cannot_run_here_is_left_out_and_fails_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = runner.RESULTS.read_text()
    assert runner.report(SuiteRun("suite", "Some 1.0", left_out="there is no Java"))
    assert capsys.readouterr().out == "left out: there is no Java\n"
    assert runner.RESULTS.read_text() == before


def test_no_suite_has_failed_when_it_was_last_run() -> None:
    assert {name: kept["failed"] for name, kept in json.loads(runner.RESULTS.read_text()).items()} == {
        name: {} for name in json.loads(runner.RESULTS.read_text())
    }


def test_gos_results_are_read_and_a_test_that_did_not_end_has_failed() -> None:
    events = [
        {"Action": "start"},
        {"Action": "run", "Test": "TestGood"},
        {"Action": "pass", "Test": "TestGood", "Elapsed": 0.5},
        {"Action": "run", "Test": "TestSkipped"},
        {"Action": "output", "Test": "TestSkipped", "Output": "=== RUN   TestSkipped\n"},
        {"Action": "output", "Test": "TestSkipped", "Output": "    a.go:1: no broker\n"},
        {"Action": "skip", "Test": "TestSkipped", "Elapsed": 0},
        {"Action": "run", "Test": "TestSlow"},
        {"Action": "fail", "Elapsed": 9},
    ]
    found = list(franz_go.read(json.dumps(event) for event in events))
    assert [(one.test, one.outcome, one.reason) for one in found] == [
        ("TestGood", Outcome.PASSED, ""),
        ("TestSkipped", Outcome.NOT_APPLICABLE, "a.go:1: no broker"),
        ("TestSlow", Outcome.FAILED, "did not end in time"),
    ]


def test_the_lines_of_a_jvm_that_was_killed_are_read(tmp_path: Path) -> None:
    path = tmp_path / "results.tsv"
    path.write_text(
        "SUCCESSFUL\ta.b.Some\ttestGood\t1500\t\nABORTED\ta.b.Some\ttestInside\t2\tlooks inside\nFAIL"
    )
    assert read_lines(path) == [
        Result("Some", "testGood", Outcome.PASSED, 1.5),
        Result("Some", "testInside", Outcome.NOT_APPLICABLE, 0.002, "looks inside"),
    ]
    assert read_lines(tmp_path / "missing") == []


def test_ivy_is_asked_for_single_jars_with_their_classifiers() -> None:
    text = ivy_module("some", [Module("org", "one", "1", "test"), Module("org", "two", "2")])
    assert '<artifact name="one" type="jar" ext="jar" m:classifier="test"/>' in text
    assert '<artifact name="two" type="jar" ext="jar"/>' in text


def test_pytests_results_are_read_and_a_module_that_cannot_be_imported_has_failed(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        "import pytest\n"
        "def test_good(): pass\n"
        "class TestIt:\n"
        "    @pytest.mark.parametrize('text', ['a::b'])\n"
        "    def test_bad(self, text): assert text == 1\n"
        "    @pytest.mark.skip(reason='no broker')\n"
        "    def test_skipped(self): pass\n"
        "@pytest.fixture\n"
        "def broken(): yield 1; raise OSError('away')\n"
        "def test_fails_at_its_end(broken): pass\n"
    )
    (tmp_path / "test_nothing.py").write_text("import nothing_of_this_name\n")
    lines = tmp_path / "lines.tsv"
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir=.", "--continue-on-collection-errors"]
    subprocess.run(
        [*command, "-p", "no:randomly", "-p", "result_lines"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(python_suites.OURS), "HEADRACE_SUITE_RESULTS": str(lines)},
        capture_output=True,
    )
    found = {(one.id, one.outcome, one.reason) for one in read_lines(lines)}
    assert found == {
        ("test_some.test_good", Outcome.PASSED, ""),
        ("TestIt.test_bad[a::b]", Outcome.FAILED, "AssertionError: assert 'a::b' == 1"),
        ("TestIt.test_skipped", Outcome.NOT_APPLICABLE, "Skipped: no broker"),
        ("test_some.test_fails_at_its_end", Outcome.FAILED, "OSError: away"),
        (
            "test_nothing.the module",
            Outcome.FAILED,
            "E ModuleNotFoundError: No module named 'nothing_of_this_name'",
        ),
    }
