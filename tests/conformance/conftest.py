"""The same test against our broker and Apache Kafka: `broker` is each of them in turn, `wire` a connection to it.

Both brokers are shared by all tests of a run: use `unique` for the names of topics, groups and transactional ids.
Differences that we know of are in differences.toml.
"""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace import Broker
from tests.conformance.wire_client import WireClient

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class BrokerUnderTest:
    kind: str
    bootstrap_servers: str

    @property
    def is_apache(self) -> bool:
        return self.kind == "apache"


@pytest.fixture(scope="session")
def headrace() -> Iterator[Broker]:
    """Our broker in process, set up as the Apache Kafka of the tests is."""
    with Broker(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker


@pytest.fixture(params=["headrace", pytest.param("apache", marks=pytest.mark.needs_kafka)])
def broker(request: pytest.FixtureRequest) -> BrokerUnderTest:
    """Our broker, then Apache Kafka's."""
    running = request.getfixturevalue(request.param)
    return BrokerUnderTest(request.param, running.bootstrap_servers)


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
