"""The same test against our broker and Apache Kafka: `broker` is each of them in turn, `wire` a connection to it.

Both brokers are shared by all tests of a run: use `unique` for the names of topics, groups and transactional ids.
Differences that we know of are in differences.toml.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.conformance.wire_client import WireClient

from headrace.testing import ApacheKafka

HERE = Path(__file__).parent
# Nothing that changes behaviour may differ between the two, so both get the same settings.
SETTINGS = {"group.initial.rebalance.delay.ms": 0, "num.partitions": 1}


@dataclass(frozen=True, slots=True)
class BrokerUnderTest:
    kind: str
    bootstrap_servers: str

    @property
    def is_apache(self) -> bool:
        return self.kind == "apache"


@pytest.fixture(scope="session", params=["headrace", pytest.param("apache", marks=pytest.mark.needs_kafka)])
def broker(request: pytest.FixtureRequest) -> Iterator[BrokerUnderTest]:
    """Our broker in process, then Apache Kafka's in a JVM."""
    if request.param == "apache":
        with ApacheKafka(settings=SETTINGS) as apache:
            yield BrokerUnderTest("apache", apache.bootstrap_servers)
    else:
        from headrace import Broker

        with Broker(settings=SETTINGS) as ours:
            yield BrokerUnderTest("headrace", ours.bootstrap_servers)


@pytest.fixture
def wire(broker: BrokerUnderTest) -> Iterator[WireClient]:
    """A fresh connection that speaks any message in any version."""
    with WireClient(broker.bootstrap_servers) as client:
        yield client


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    differences = {entry["test"]: entry["reason"] for entry in _differences()}
    found = set()
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        name = f"{item.path.relative_to(HERE)}::{getattr(item, 'originalname', item.name)}"
        found.add(name)
        kind = getattr(item, "callspec", None) and item.callspec.params.get("broker")  # type: ignore[attr-defined]
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
