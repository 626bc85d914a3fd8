"""What is advertised is what works: the list is Kafka's own, and every version on it is exercised by a test.

The APIs of share groups have their list and their tests in `share/`.
"""

from importlib import import_module
from pathlib import Path

from headrace.wire.apis import NAMES
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.versions import ADVERTISED, SINCE_4_4
from tests.conformance.wire_client import WireClient


def test_the_versions_are_those_that_kafka_advertises(broker: BrokerUnderTest, wire: WireClient) -> None:
    response = wire.ask("api_versions", 0)
    ranges = {NAMES.get(api.api_key): (api.min_version, api.max_version) for api in response.api_keys}
    if broker.is_apache:
        ranges = {name: ranges.get(name) for name in ADVERTISED}
    ranges = {name: versions for name, versions in ranges.items() if "share" not in str(name)}
    newer = {} if broker.is_apache else SINCE_4_4
    assert ranges == {**ADVERTISED, **newer, "produce": (0, 13)}


def test_every_advertised_api_has_a_test_for_each_of_its_versions() -> None:
    exercised = set()
    for file in Path(__file__).parent.glob("test_versions_of_*.py"):
        module = import_module(f"tests.conformance.{file.stem}")
        exercised |= {getattr(item, "exercises", None) for item in vars(module).values()}
    assert exercised - {None} == set(ADVERTISED)
