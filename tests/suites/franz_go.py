"""franz-go's tests of its client `kgo`, from its Go module, against one broker.

They move records through chains of consumer groups, transactions and share groups, with every kind of balancer. By
default they take 500,000 records a chain, which a busy machine does not move in a bounded time.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.testing.user_cache import filled
from tests.suites.broker import PASSWORD, USER, ServedBroker, served
from tests.suites.results import Outcome, Result, SuiteRun

MODULE, VERSION = "github.com/twmb/franz-go", "v1.22.2"
PACKAGE = f"{MODULE}/pkg/kgo"
BUILD_S_MAX = 900
MINUTES = 20
RECORDS = 20_000
OUTCOMES = {"pass": Outcome.PASSED, "fail": Outcome.FAILED, "skip": Outcome.NOT_APPLICABLE}


class GoUnavailable(Exception):
    """There is no Go, or its modules cannot be fetched."""


def why_not() -> str | None:
    """Why these tests cannot run on this machine."""
    try:
        _binary()
    except GoUnavailable as error:
        return str(error)
    return None


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to reach the broker."""

    suite: str
    listener: str = "PLAINTEXT"
    is_chaos: bool = False
    """Connections are slow and break."""
    tests: str = "."
    """A pattern of the tests that differ in this way."""
    without: tuple[str, ...] = ()
    """Tests that panic when the broker is reached in this way."""

    def environment(self, broker: ServedBroker) -> dict[str, str]:
        return {
            "KGO_SEEDS": broker.addresses[self.listener],
            "KGO_TEST_SCRAM_SEEDS": broker.addresses["SASL_PLAINTEXT"],
            "KGO_TEST_SCRAM": f"{USER}:{PASSWORD}:256",
            "KGO_TEST_RF": "1",
            "KGO_TEST_RECORDS": str(RECORDS),
            "KGO_LOG_LEVEL": "none",
            **({"KGO_TEST_CHAOS": "1"} if self.is_chaos else {}),
            **({"KGO_TEST_TLS": f"ca:{broker.ca}"} if self.listener == "SSL" else {}),
        }


PLAIN = Variant("franz-go")
VARIANTS = (
    PLAIN,
    Variant("franz-go-chaos", is_chaos=True, tests="^(TestGroupETL|TestShareGroupETL|TestTxnEtl)$"),
    Variant("franz-go-tls", listener="SSL", without=("TestIssue769",)),
)
NO_TLS = "The test uses a dialer of its own, which franz-go refuses together with TLS; the test then panics."


def run(variant: Variant = PLAIN, minutes: float = MINUTES) -> SuiteRun:
    version = f"franz-go {VERSION}"
    reason = why_not()
    if reason is not None:
        return SuiteRun(variant.suite, version, left_out=reason)
    with TemporaryDirectory(prefix="suites-") as name, served(Path(name)) as broker:
        lines = _run(_binary(), variant, broker, minutes)
    results = tuple(read(lines))
    if not results:
        raise RuntimeError(f"kgo ran no test: {''.join(lines)[-500:]}")
    left = tuple(Result("kgo", test, Outcome.NOT_APPLICABLE, 0, NO_TLS) for test in variant.without)
    return SuiteRun(variant.suite, version, results + left)


def _run(binary: Path, variant: Variant, broker: ServedBroker, minutes: float) -> list[str]:
    bound = f"-test.timeout={minutes * 60:.0f}s"
    command = ["go", "tool", "test2json", "-t", str(binary), "-test.v=test2json", bound]
    command += ["-test.run", variant.tests]
    if variant.without:
        command += ["-test.skip", f"^({'|'.join(variant.without)})$"]
    # The tests end by themselves at their bound, and report which one was running.
    answer = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, **variant.environment(broker)},
        cwd=_sources(binary.parent),
        timeout=minutes * 60 + 60,
    )
    return answer.stdout.splitlines(keepends=True)


def _sources(folder: Path) -> str:
    """Some of the tests read files beside them."""
    command = ["go", "list", "-f", "{{.Dir}}", PACKAGE]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


def read(lines: Iterable[str]) -> Iterable[Result]:
    """The results in what `go tool test2json` prints. A test that began and did not end has failed."""
    said: dict[str, str] = {}
    running: dict[str, None] = {}
    for line in lines:
        event: Mapping[str, object] = json.loads(line)
        test, action = str(event.get("Test", "")), event["Action"]
        if not test:
            continue
        if action == "run":
            running[test] = None
        elif action == "output":
            text = str(event["Output"]).strip()
            if text and not text.startswith(("===", "---")):
                said.setdefault(test, text)
        elif action in OUTCOMES:
            running.pop(test, None)
            outcome = OUTCOMES[str(action)]
            reason = "" if outcome is Outcome.PASSED else said.get(test, "")
            yield Result("kgo", test, outcome, float(str(event.get("Elapsed", 0))), reason)
    for test in running:
        yield Result("kgo", test, Outcome.FAILED, 0, "did not end in time")


def _binary() -> Path:
    """The compiled tests, in the per-user cache; the first time it takes minutes."""
    go = shutil.which("go")
    if go is None:
        raise GoUnavailable("Go is not installed")

    def build(folder: Path) -> None:
        (folder / "go.mod").write_text("module suites\n\ngo 1.24\n")
        for command in (
            [go, "get", "-t", f"{PACKAGE}@{VERSION}"],
            [go, "test", "-c", "-o", "kgo.test", PACKAGE],
        ):
            try:
                answer = subprocess.run(
                    command, cwd=folder, capture_output=True, text=True, timeout=BUILD_S_MAX
                )
            except subprocess.TimeoutExpired:
                raise GoUnavailable(f"{' '.join(command[1:])} did not end within {BUILD_S_MAX} s") from None
            if answer.returncode != 0:
                raise GoUnavailable(f"{' '.join(command[1:])}: {answer.stderr.strip()[-300:]}")

    folder = filled(
        f"franz-go-{VERSION}", is_current=lambda folder: (folder / "kgo.test").is_file(), fill=build
    )
    return folder / "kgo.test"
