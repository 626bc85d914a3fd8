"""Tests of Celery's kombu, of Dramatiq and of Taskiq on our adapters: what those projects ask of a broker.

Their tests come from their source archives, in the version that is installed here. The files in `python/` are ours:
they give those tests a Headrace broker in another process in the place of RabbitMQ, Redis or a broker in memory.
"""

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.testing.child_process import ChildProcess
from headrace.testing.user_cache import filled
from tests.packages import PackagesUnavailable, pip
from tests.suites.broker import served
from tests.suites.results import Outcome, Result, SuiteRun, read_lines

OURS = Path(__file__).with_name("python")
TEST_S_MAX = 90
RESULTS = "results.tsv"


@dataclass(frozen=True, slots=True)
class PythonSuite:
    """Tests of a package. `folder` is theirs; `added` says where in a copy of it files of ours go."""

    suite: str
    folder: str
    tests: tuple[str, ...]
    added: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    imported: tuple[str, ...] = ()
    """Packages that their tests import and do not use here."""
    unsteady: Mapping[str, str] = field(default_factory=dict)
    """Tests that pass or fail by chance, with the reason. They are not run."""
    minutes: float = 20


SUITES = (
    PythonSuite(
        "kombu",
        "t",
        ("t/integration/test_headrace.py",),
        {"kombu_tests.py": "t/integration/test_headrace.py"},
    ),
    PythonSuite(
        "dramatiq",
        "tests",
        tuple(
            f"tests/test_{name}.py"
            for name in ("actors", "callbacks", "composition", "rabbitmq", "results", "stub_broker", "worker")
        ),
        {"dramatiq_common.py": "tests/common.py", "dramatiq_conftest.py": "tests/conftest.py"},
        imported=("pika",),
        unsteady={
            "tests/test_actors.py::test_actors_can_delay_messages_independent_of_each_other": "Wants messages that are "
            "due within half a second in the order of their times. A worker that starts later forwards both at once.",
            "tests/test_composition.py::test_groups_execute_inner_groups": "Wants three levels of groups to be done "
            "within half a second, which a busy machine does not keep.",
            "tests/test_composition.py::test_groups_execute_jobs_in_parallel": "Wants five jobs of 0.1 s to be done "
            "within half a second, which a busy machine does not keep.",
            "tests/test_rabbitmq.py::test_rabbitmq_actors_retry_with_backoff_on_failure": "Wants a retry within 0.2 s "
            "of its time, which a busy machine does not keep.",
        },
    ),
    PythonSuite(
        "taskiq",
        "tests",
        (
            "tests/brokers/test_inmemory.py",
            "tests/depends/test_progress_tracker.py",
            "tests/middlewares/test_task_retry.py",
            "tests/test_requeue.py",
            "tests/test_retry_task.py",
        ),
        options=("-p", "taskiq_on_headrace", "-o", "anyio_mode=auto"),
        unsteady={
            "tests/brokers/test_inmemory.py::test_wait_all": "Waits for tasks that have begun, and expects that a task "
            "begins as it is sent."
        },
    ),
)


def why_not(suite: PythonSuite) -> str | None:
    """Why these tests cannot run on this machine."""
    try:
        _sources(suite)
    except PackagesUnavailable as error:
        return str(error)
    return None


def run(suite: PythonSuite, *, only: str | None = None) -> SuiteRun:
    """Runs the tests, or those whose names match pytest's expression `only`."""
    reason = why_not(suite)
    if reason is not None:
        return SuiteRun(suite.suite, suite.suite, left_out=reason)
    with TemporaryDirectory(prefix="suites-") as name:
        folder = Path(name)
        sources = _sources(suite)
        work = folder / "work"
        shutil.copytree(sources / suite.folder, work / suite.folder)
        (work / suite.folder / "__init__.py").touch()
        for ours, theirs in suite.added.items():
            shutil.copyfile(OURS / ours, work / theirs)
        with served(folder) as broker:
            results = _run(suite, folder, sources / "imported", broker.addresses["PLAINTEXT"], only)
    left_out = [
        Result(Path(test.partition("::")[0]).stem, test.rpartition("::")[2], Outcome.NOT_APPLICABLE, 0.0, why)
        for test, why in suite.unsteady.items()
        if not only
    ]
    return SuiteRun(suite.suite, f"{suite.suite} {version(suite.suite)}", (*results, *left_out))


def _run(suite: PythonSuite, folder: Path, imported: Path, servers: str, only: str | None) -> list[Result]:
    command: list[str | Path] = [sys.executable, "-m", "pytest", "-q", "--rootdir", folder / "work"]
    command += [
        "-p",
        "no:randomly",
        "-p",
        "no:cacheprovider",
        "-p",
        "result_lines",
        f"--timeout={TEST_S_MAX}",
    ]
    command += ["--continue-on-collection-errors", *(f"--deselect={test}" for test in suite.unsteady)]
    command += [*suite.options, *(["-k", only] if only else []), *suite.tests]
    path = [str(OURS), str(folder / "work"), str(imported), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        "HEADRACE_SUITE_SERVERS": servers,
        "HEADRACE_SUITE_RESULTS": str(folder / RESULTS),
        "PYTHONPATH": os.pathsep.join(path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    tests = ChildProcess(command, output=folder / "output.txt", env=environment, cwd=folder / "work")
    late: list[Result] = []
    try:
        tests.wait(suite.minutes * 60)
    except subprocess.TimeoutExpired:
        late = [_failure(suite, "the rest", f"did not end within {suite.minutes:g} minutes")]
    finally:
        tests.stop()
    results = read_lines(folder / RESULTS) + late
    if not results:
        raise RuntimeError(f"pytest ran no test: {tests.output_tail()}")
    return results


def _failure(suite: PythonSuite, test: str, reason: str) -> Result:
    return Result(suite.suite, test, Outcome.FAILED, 0.0, reason)


def _sources(suite: PythonSuite) -> Path:
    """The folder with the tests of the installed version, fetched once for each user."""
    try:
        wanted = f"{suite.suite}=={version(suite.suite)}"
    except PackageNotFoundError:
        raise PackagesUnavailable(f"{suite.suite} is not installed (make setup installs it)") from None
    done = "\n".join([wanted, *suite.imported])

    def fill(folder: Path) -> None:
        with TemporaryDirectory(prefix="suites-") as name:
            pip("download", "--no-deps", "--no-binary=:all:", "--no-build-isolation", "--dest", name, wanted)
            (archive,) = Path(name).iterdir()
            with tarfile.open(archive) as opened:
                opened.extractall(folder / "archive", filter="data")
        (unpacked,) = (folder / "archive").iterdir()
        shutil.move(unpacked / suite.folder, folder / suite.folder)
        shutil.rmtree(folder / "archive")
        if suite.imported:
            pip("install", "--no-deps", "--target", str(folder / "imported"), *suite.imported)
        (folder / "done.txt").write_text(done)

    def is_current(folder: Path) -> bool:
        kept = folder / "done.txt"
        return kept.is_file() and kept.read_text() == done

    return filled(f"{suite.suite}-tests", is_current=is_current, fill=fill)
