"""What every test gets: the needs that a machine may not meet, the rounds of long tests, Hypothesis' profiles."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import hypothesis
import pytest

from tests import needs, spark_archive, tiers
from tests.postgres import PostgresServer

# Helpers that assert, named here because other folders import them before conformance/ is collected.
pytest.register_assert_rewrite("tests.compat.both", "tests.conformance.plain", "tests.conformance.steps")

hypothesis.settings.register_profile("default", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.register_profile("deep", deadline=None, max_examples=5_000, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rounds", type=int, default=3, help="how often a chaos test repeats itself")
    parser.addoption(
        "--thorough", action="store_true", help="also tests that say the same as others at more length"
    )


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what it runs in the background with Ctrl+C ignored, and children inherit that; ours are sent it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for process in (
        "SUBMIT_OPTS",
        "DAEMON_JAVA_OPTS",
    ):  # sessions and drivers; masters, workers, Connect servers
        os.environ.setdefault(f"SPARK_{process}", spark_archive.java_options())
    config.stash[needs.LEFT_OUT] = {}
    config.addinivalue_line(
        "markers", "verify: runs in make verify instead of make test (see CONTRIBUTING.md)"
    )
    config.addinivalue_line("markers", "thorough: runs only with --thorough (make spark), for its time")
    for name, (_, meaning) in needs.NEEDS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    needs.mark(items)
    is_part = config.getoption("keyword") or config.getoption(
        "lf", default=False
    )  # of a plugin that may be off
    tiers.mark(items, is_whole=not is_part and all(Path(argument).is_dir() for argument in config.args))
    if not config.getoption("--thorough"):
        left_out = [item for item in items if item.get_closest_marker("thorough") is not None]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish(session: pytest.Session) -> None:
    needs.look_up(session.items)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    needs.leave_out_or_fail(item)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    needs.report(terminalreporter, config.stash[needs.LEFT_OUT])


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    """How often a long test repeats itself: few in `make test`, many in `make chaos ROUNDS=...`."""
    return int(request.config.getoption("--rounds"))


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> str:
    """A name nobody else uses, for topics, groups and transactional ids on a broker that tests share."""
    return f"{request.node.originalname[:40]}-{uuid4().hex[:8]}".replace("_", "-")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    yield server
    server.stop()
