"""Goal: on a cluster of three every call finds the broker it needs, also after that broker has died.

Method: Apache Kafka with replication; the coordinator of a group, which leads partitions too, is killed with -9.
"""

import os
import signal
from collections.abc import Iterator

import pytest

from headrace.client.admin import EARLIEST, LATEST, Admin
from headrace.testing import ApacheKafka
from tests.conformance.share.share_client import ACCEPT, LEAVE, ShareMember, fill
from tests.conformance.steps import topic_id_of, wait_for
from tests.conformance.wire_client import WireClient

pytestmark = pytest.mark.needs_kafka
SETTINGS = {
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
    "offsets.topic.num.partitions": 6,
    "share.coordinator.state.topic.num.partitions": 6,
    "default.replication.factor": 3,
}
GROUPS = [f"kitchen-{number}" for number in range(6)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ApacheKafka]:
    with ApacheKafka(nodes=3, heap="256m", settings=SETTINGS) as cluster:
        yield cluster


def settle_some(cluster: ApacheKafka, admin: Admin, group: str) -> None:
    """A member accepts records 1 and 2 of partition 0, and leaves."""
    leader = admin.describe_topics(["orders"])["orders"].partitions[0].leader
    nodes = {node.node_id: node for node in admin.cluster().nodes}
    assert leader is not None
    coordinator = admin.describe_share_group(group).coordinator
    with (
        WireClient(f"{coordinator.host}:{coordinator.port}") as beats,
        WireClient(f"{nodes[leader].host}:{nodes[leader].port}") as records,
    ):
        member = ShareMember(beats, group, topic_id_of(records, "orders"))
        member.join("orders")
        member.connection = records
        member.take(6, 0)
        assert member.ack((1, 2, ACCEPT)) == 0
        member.close()
        member.connection = beats
        member.heartbeat(LEAVE)


def test_everything_is_found_on_three_nodes_and_after_one_of_them_has_died(cluster: ApacheKafka) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        topic = admin.create_topic("orders", partitions=3)
        assert {len(one.isr) for one in topic.partitions} == {3}
        assert {one.leader for one in topic.partitions} == {1, 2, 3}
        described = {node.node_id: node for node in admin.cluster().nodes}
        leader = described[topic.partitions[0].leader or 0]
        with WireClient(f"{leader.host}:{leader.port}") as wire:
            fill(wire, "orders", 6)
        for group in GROUPS:
            admin.alter_share_group_offsets(group, to=EARLIEST, topics=["orders"])
        coordinators = {group: admin.describe_share_group(group).coordinator.node_id for group in GROUPS}
        assert len(set(coordinators.values())) > 1, "groups are spread over the brokers"
        assert [group.group_id for group in admin.list_groups(type="share")] == GROUPS
        settle_some(cluster, admin, GROUPS[0])
        before = admin.share_state(GROUPS[0])["orders", 0]
        assert [
            (run.first, run.last, run.state.name) for run in before.runs if run.state.name != "AVAILABLE"
        ] == [(1, 2, "ACKNOWLEDGED")]

        admin.create_topic("alone", partitions=3, replication_factor=1)

        victim = coordinators[GROUPS[0]]
        os.kill(cluster.pids[victim - 1], signal.SIGKILL)
        moved = admin.describe_share_group(GROUPS[0])
        assert moved.coordinator.node_id != victim
        wait_for(lambda: victim not in {node.node_id for node in admin.cluster().nodes})
        assert [group.group_id for group in admin.list_groups(type="share")] == GROUPS
        after = admin.share_state(GROUPS[0])["orders", 0]
        assert (after.runs, after.start_offset) == (before.runs, before.start_offset)
        offsets = admin.share_group_offsets(GROUPS[0])
        assert (offsets["orders", 0].lag, offsets["orders", 0].end_offset) == (4, 6)
        left_alone = admin.describe_topics(["alone"], offsets=True)["alone"].partitions
        assert (
            sorted((one.leader is None, one.end_offset) for one in left_alone if one.leader)
            == [(False, 0)] * 2
        )
        assert [one.end_offset for one in left_alone if one.leader is None] == [None]
        admin.set_group_config(GROUPS[0], {"share.auto.offset.reset": "earliest"})
        assert admin.create_topic("more", partitions=3, replication_factor=2).replication_factor == 2
        moved_to = admin.alter_share_group_offsets(GROUPS[0], to=LATEST)
        assert moved_to["orders", 0].after == 6
        admin.delete_groups(GROUPS)
        assert admin.list_groups(type="share") == []
