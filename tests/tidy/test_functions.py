"""Functions stay short, and only named modules read a clock or draw random numbers."""

import ast
import random
import secrets
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.tree import GENERATED, REPOSITORY, modules, parsed

PACKAGE = REPOSITORY / "src" / "headrace"
LINES_MAX = 50
"""Of a function's body, without its signature and docstring: options of a command are declared in the signature."""
LONG = {
    "cli/demo/poison_story.py:play": "a story, told in its order",
    "cli/produce.py:produce": "checks of options that exclude each other, one after another",
}
"""Functions that may be longer, and why."""

SOURCES = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep"},
    "datetime": {"now", "utcnow"},
    "random": set(random.__all__),
    "secrets": set(secrets.__all__) - {"compare_digest"},
    "uuid": {"uuid1", "uuid4"},
    "os": {"urandom"},
}
FREE = ("cli", "testing", "web")
"""Packages that talk to people: nothing that is stored or promised depends on the time they read."""
ALLOWED = {
    "adapters/dramatiq.py": "time-outs of calls",
    "adapters/kombu_readers.py": "time-outs of calls",
    "broker/clock.py": "the clock that everything else in the broker is given",
    "broker/connection.py": "how long responses take, for metrics",
    "broker/group_commit.py": "how long syncs take, which sets how many run at a time",
    "broker/fetch_sessions.py": "ids of sessions",
    "broker/groups/coordinator.py": "ids of members",
    "broker/handlers/share_fetch.py": "how long acquiring takes, for metrics",
    "broker/loop_lag.py": "how late the event loop is, for metrics",
    "broker/request_metrics.py": "how long requests take, for metrics",
    "broker/security/sasl/scram.py": "nonces",
    "broker/security/scram.py": "salts",
    "broker/security/users.py": "salts",
    "client/admin/users.py": "salts",
    "client/background.py": "time-outs of calls",
    "client/cluster.py": "jitter of retries",
    "client/connection.py": "when to log in again",
    "client/consumption.py": "time-outs of calls; times in metrics",
    "client/dead_letters.py": "the time and the id of a redrive",
    "client/links.py": "jitter of reconnects",
    "client/member.py": "the clock that the core is given; ids of members",
    "client/metrics.py": "rates",
    "client/producing/driver.py": "jitter of retries",
    "client/producing/record.py": "timestamps of records",
    "client/producing/sync.py": "time-outs of calls",
    "client/security.py": "nonces",
    "client/sync.py": "time-outs of calls",
    "log/backup.py": "when to report progress",
    "log/disk.py": "waiting for a descriptor that others give back",
    "log/memory_disk.py": "which unsynced bytes a power cut takes, from a seed",
    "log/metadata.py": "ids of clusters and topics",
    "spark/ahead_notes.py": "names of files that are new",
    "spark/checkpoint.py": "names of files that are new; waiting for Spark's log",
    "spark/dead_letters.py": "timestamps of records",
    "spark/driver.py": "ids of queries",
    "spark/parsing.py": "names of columns that are new",
    "worker/copying.py": "jitter of retries",
    "worker/forwarder.py": "jitter of takeovers",
    "worker/membership.py": "ids of members",
    "worker/later.py": "ids of delayed tasks",
    "worker/queue.py": "when a delayed task is due",
    "worker/runner.py": "jitter of retries",
    "worker/schedule.py": "the clock that the schedule is given",
    "worker/testing.py": "time-outs of tests",
    "worker/threads.py": "how long a task runs",
    "worker/transactions/copies.py": "jitter of retries; ids of messages",
    "worker/transactions/relay.py": "the name of a relay; jitter of retries",
    "worker/transactions/sqlite.py": "jitter of retries",
}
"""Modules that read a clock or draw random numbers, and what for."""


def sources() -> list[Path]:
    return [path for path in modules("src") if PACKAGE in path.parents and GENERATED not in path.parents]


def place(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def long_functions(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            if body and (node.end_lineno or 0) - body[0].lineno >= LINES_MAX:
                yield node.name


def clocks(tree: ast.Module) -> set[str]:
    """What a module uses of clocks and randomness."""
    used = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            used |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            used.add(f"{node.value.id}.{node.attr}")
    return used & {f"{module}.{name}" for module, names in SOURCES.items() for name in names}


def test_functions_are_short_but_for_those_with_a_reason() -> None:
    long = {f"{place(path)}:{name}" for path in sources() for name in long_functions(parsed(path))}
    assert long == set(LONG)


def test_only_named_modules_read_a_clock_or_draw_random_numbers() -> None:
    found = {place(path) for path in sources() if clocks(parsed(path))}
    assert {name for name in found if name.partition("/")[0] not in FREE} == set(ALLOWED)


def test_a_long_function_and_a_clock_are_found() -> None:
    text = "def f():\n" + "    x = 1\n" * 60 + "import time\nnow = time.monotonic()\nfrom uuid import uuid4\n"
    tree = ast.parse(text)
    assert [*long_functions(tree)] == ["f"]
    assert clocks(tree) == {"time.monotonic", "uuid.uuid4"}
