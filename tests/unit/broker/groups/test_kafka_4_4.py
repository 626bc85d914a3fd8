"""Goal: the versions that Kafka 4.4 adds to requests answer as its message definitions say.

No Apache Kafka 4.4 server is published, so these tests cannot run against one: they are not conformance tests.
"""

from typing import Any

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.message import ZERO_UUID
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.end_txn_request import EndTxnRequest
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.unit.broker.groups.share_world import ShareWorld

UNKNOWN_ID = b"\x07" * 16


def ask_versions(world: ShareWorld, **fields: Any) -> Any:
    return world.ask(
        ApiVersionsRequest(client_software_name="test", client_software_version="1", **fields), 5
    )


def test_a_client_that_expects_this_broker_is_answered(world: ShareWorld) -> None:
    here = {"cluster_id": world.core.cluster_id, "node_id": world.core.node_id}
    assert ask_versions(world, **here).error_code == 0
    assert ask_versions(world, **here).api_keys


@pytest.mark.parametrize("other", [{"cluster_id": "another"}, {"node_id": 99}])
def test_a_client_that_expects_another_broker_must_bootstrap_again(
    world: ShareWorld, other: dict[str, Any]
) -> None:
    here = {"cluster_id": world.core.cluster_id, "node_id": world.core.node_id}
    assert ask_versions(world, **{**here, **other}).error_code == ErrorCode.REBOOTSTRAP_REQUIRED


@pytest.mark.parametrize("known", [{}, {"cluster_id": "another"}, {"node_id": 99}])
def test_a_client_that_does_not_know_both_is_answered(world: ShareWorld, known: dict[str, Any]) -> None:
    assert ask_versions(world, **known).error_code == 0


class TestOffsetsInTransactions:
    def begin(self, world: ShareWorld) -> dict[str, Any]:
        request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
        producer = world.ask(request, 5)
        return {
            "transactional_id": "x",
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
        }

    def commit(self, world: ShareWorld, producer: dict[str, Any], *topic_ids: bytes, **fields: Any) -> Any:
        topics = [
            TxnOffsetCommitRequestTopic(
                topic_id=topic_id,
                partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7)],
            )
            for topic_id in topic_ids
        ]
        return world.ask(TxnOffsetCommitRequest(group_id="g", topics=topics, **producer, **fields), 6)

    def committed(self, world: ShareWorld) -> int:
        topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
        group = OffsetFetchRequestGroup(group_id="g", topics=[topic])
        response = world.ask(OffsetFetchRequest(groups=[group]), 8)
        return int(response.groups[0].topics[0].partitions[0].committed_offset)

    def test_topics_are_named_by_id(self, world: ShareWorld) -> None:
        topic_id = world.new_topic("t")
        world.write("t", 10)
        producer = self.begin(world)
        (topic,) = self.commit(world, producer, topic_id).topics
        assert (topic.topic_id, topic.partitions[0].error_code) == (topic_id, 0)
        assert world.ask(EndTxnRequest(committed=True, **producer), 4).error_code == 0
        assert self.committed(world) == 7

    @pytest.mark.parametrize("topic_id", [UNKNOWN_ID, ZERO_UUID])
    def test_an_id_that_no_topic_has_is_refused_and_the_others_are_taken(
        self, world: ShareWorld, topic_id: bytes
    ) -> None:
        known = world.new_topic("t")
        response = self.commit(world, self.begin(world), known, topic_id)
        codes = {topic.topic_id: topic.partitions[0].error_code for topic in response.topics}
        assert codes == {known: 0, topic_id: ErrorCode.UNKNOWN_TOPIC_ID}

    def test_a_group_that_does_not_exist_is_named_as_such(self, world: ShareWorld) -> None:
        topic_id = world.new_topic("t")
        fields = {"generation_id_or_member_epoch": 1, "member_id": "m"}
        (topic,) = self.commit(world, self.begin(world), topic_id, **fields).topics
        assert topic.partitions[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_that_cannot_be_deleted_says_why(world: ShareWorld) -> None:
    (result,) = world.ask(DeleteGroupsRequest(groups_names=["g"]), 3).results
    assert (result.error_code, result.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group g not found.",
    )
