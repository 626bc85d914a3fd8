"""Goal: the cluster tells who it is and what it can, on both brokers."""

import pytest

from headrace.client.admin import Admin
from headrace.client.cluster import Node
from headrace.client.errors import BrokerNotAvailableError
from tests.conformance.conftest import BrokerUnderTest


def test_the_cluster_names_its_brokers_and_its_controller(admin: Admin, broker: BrokerUnderTest) -> None:
    found = admin.cluster()
    only = Node(1, broker.host, broker.port)
    assert found.nodes == (only,)
    assert found.controller == only
    assert len(found.cluster_id) == 22


def test_share_groups_are_among_its_features(admin: Admin) -> None:
    features = admin.features()
    assert features.finalized["share.version"] >= 1
    low, high = features.supported["share.version"]
    assert low <= features.finalized["share.version"] <= high
    assert features.epoch is not None


def test_a_broker_shows_its_configs(admin: Admin) -> None:
    config = admin.broker_config()
    assert config == admin.broker_config(1)
    entry = config["group.share.record.lock.duration.ms"]
    assert (entry.value, entry.is_default) == ("30000", True)
    assert config["group.initial.rebalance.delay.ms"].value == "0"


def test_a_broker_that_is_not_there_is_named_beside_those_that_are(admin: Admin) -> None:
    with pytest.raises(BrokerNotAvailableError, match="no broker 9, only 1"):
        admin.broker_config(9)
