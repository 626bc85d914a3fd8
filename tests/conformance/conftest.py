"""The same test against our broker and Apache Kafka: `broker` is each of them in turn, `wire` a connection to it.

Both brokers are shared by all tests of a run: use `unique` for the names of topics, groups and transactional ids.
Differences that we know of are in differences.toml.
"""

import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace import Broker
from headrace.testing import ApacheKafka
from tests.conformance.steps import now_ms, wait_until_coordinators_are_ready
from tests.conformance.wire_client import WireClient

HERE = Path(__file__).parent
# Nothing that changes behavior may differ between the two, so both get the same settings. They make Kafka's timers
# short, so that a test of time takes no longer than it must.
SESSIONS_MAX = 250
DAY_MS = 24 * 3_600_000
SETTINGS = {
    # Some records of the tests are from 1970: no retention check may come and delete them.
    "log.retention.check.interval.ms": DAY_MS,
    "log.cleaner.backoff.ms": DAY_MS,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 100,
    "group.consumer.min.session.timeout.ms": 100,
    "group.consumer.min.heartbeat.interval.ms": 50,
    "group.consumer.assignment.interval.ms": 0,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
    "group.share.min.record.lock.duration.ms": 1_000,
    "group.share.min.session.timeout.ms": 100,
    "group.share.min.heartbeat.interval.ms": 50,
    "group.share.assignment.interval.ms": 0,
    "group.share.max.share.sessions": SESSIONS_MAX,
}
SHARE_SETTINGS = {**SETTINGS, "log.cleaner.backoff.ms": 100}
"""For tests that wait for a log to be compacted. Our broker deletes old records as often as it compacts, so the one for
the other tests does not have it."""


@dataclass(frozen=True, slots=True)
class BrokerUnderTest:
    kind: str
    bootstrap_servers: str
    pass_time: Callable[[float], None]
    """Lets so many seconds pass for the broker: turns the clock of ours, and waits for Apache Kafka's."""
    now_ms: Callable[[], int]
    """What the broker's wall clock shows: other tests may have turned it ahead of the system's."""

    @property
    def is_apache(self) -> bool:
        return self.kind == "apache"

    @property
    def node_id(self) -> int:
        return 1

    @property
    def host(self) -> str:
        return self.bootstrap_servers.rpartition(":")[0]

    @property
    def port(self) -> int:
        return int(self.bootstrap_servers.rpartition(":")[2])


@pytest.fixture(scope="session")
def headrace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Our broker in process, set up as the Apache Kafka of the tests is, and on disk as that is.

    Tests turn its clock (`pass_time`). It starts ahead, so that a test that takes the system's clock for the broker's
    fails always instead of only after such a test.
    """
    with Broker(data_dir=tmp_path_factory.mktemp("headrace"), settings=SETTINGS) as broker:
        broker.advance(60)
        yield broker


@pytest.fixture(scope="session")
def apache() -> Iterator[ApacheKafka]:
    """The one Apache Kafka of this folder and those in it, all of whose coordinators are awake."""
    from tests.conformance.share.share_client import wait_until_share_coordinators_are_ready

    first_check = {"log.initial.task.delay.ms": DAY_MS}
    with ApacheKafka(settings={**SHARE_SETTINGS, **first_check}) as cluster:
        with WireClient(cluster.bootstrap_servers) as wire:
            wait_until_coordinators_are_ready(wire)
            wait_until_share_coordinators_are_ready(wire)
        yield cluster


@pytest.fixture(params=["headrace", pytest.param("apache", marks=pytest.mark.needs_kafka)])
def broker(request: pytest.FixtureRequest) -> BrokerUnderTest:
    """Our broker, then Apache Kafka's."""
    return _under_test(request.getfixturevalue(request.param))


def _under_test(running: Broker | ApacheKafka) -> BrokerUnderTest:
    if isinstance(running, Broker):
        return BrokerUnderTest("headrace", running.bootstrap_servers, running.advance, running._clock.wall_ms)
    return BrokerUnderTest("apache", running.bootstrap_servers, time.sleep, now_ms)


@pytest.fixture
def wire(broker: BrokerUnderTest) -> Iterator[WireClient]:
    """A fresh connection that speaks any message in any version."""
    with WireClient(broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def connect(broker: BrokerUnderTest) -> Iterator[Callable[[], WireClient]]:
    """Opens more connections; all are closed at the end of the test."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(WireClient(broker.bootstrap_servers))


@pytest.fixture
def broker_with(broker: BrokerUnderTest) -> Iterator[Callable[[Mapping[str, object]], BrokerUnderTest]]:
    """Starts one more broker of the same kind, with settings that the shared one cannot have."""
    with ExitStack() as stack:

        def start(settings: Mapping[str, object]) -> BrokerUnderTest:
            kind = ApacheKafka if broker.is_apache else Broker
            return _under_test(stack.enter_context(kind(settings={**SETTINGS, **settings})))

        yield start


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    differences = {entry["test"]: entry["reason"] for entry in _differences()}
    found = set()
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        name = f"{item.path.relative_to(HERE)}::{getattr(item, 'originalname', item.name)}"
        found.add(name)
        params = item.callspec.params if hasattr(item, "callspec") else {}
        kind = params.get("broker") or params.get("site")
        if name in differences and kind == "headrace":
            item.add_marker(pytest.mark.xfail(strict=True, reason=differences[name]))
    files = {name.split("::")[0] for name in found}
    unknown = {name for name in differences if name.split("::")[0] in files} - found
    missing = {name for name in differences if not (HERE / name.split("::")[0]).is_file()}
    is_narrowed = any("::" in argument for argument in config.args)
    if missing or (unknown and not is_narrowed):
        raise pytest.UsageError(
            f"differences.toml names tests that do not exist: {sorted(unknown | missing)}"
        )


def _differences() -> list[dict[str, str]]:
    return list(tomllib.loads((HERE / "differences.toml").read_text()).get("difference", []))
