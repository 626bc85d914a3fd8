"""ShareAcknowledge (79), v1-v2: a member acknowledges records it holds, without fetching.

The session is shared with ShareFetch: a good request moves its epoch by one; -1 takes the acknowledgements and closes
it. v2 adds RENEW (KIP-1222). Refused: unknown session 122, wrong epoch 123, a record the member does not hold 121.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.errors import engine_error
from headrace.broker.later import Later
from headrace.broker.security.acls import unreadable
from headrace.broker.share.leader import Results
from headrace.broker.share.requests import acks_of, identify, take_denied
from headrace.broker.share.responses import LEADER_ERRORS, lock_ms, names_leader
from headrace.broker.slices import Steps
from headrace.share.errors import ShareError
from headrace.share.session import CLOSE_EPOCH
from headrace.wire.errors import KafkaError
from headrace.wire.ids import TopicIdPartition
from headrace.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest
from headrace.wire.messages.share_acknowledge_response import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (1, 2)
TAKES_MANY = True


def handle(
    core: "BrokerCore", request: ShareAcknowledgeRequest, call: Call
) -> ShareAcknowledgeResponse | Later[ShareAcknowledgeResponse]:
    leader = core.share_leader
    leader.acknowledgements.value += 1
    core.features.require_share_groups()
    group_id, member_id = identify(request.group_id, request.member_id)
    try:
        session = leader.sessions.acknowledge(group_id, member_id, request.share_session_epoch)
    except ShareError as error:
        raise engine_error(error) from error
    acks = acks_of(request)
    later: Later[ShareAcknowledgeResponse] = Later()

    def steps() -> Steps:
        denied = unreadable(core, call, [place[0] for place in acks]) if core.access is not None else ()
        results: Results = take_denied(acks, denied)
        yield from leader.acknowledge(session, acks, results, allows_renew=request.is_renew_ack)
        if request.share_session_epoch == CLOSE_EPOCH:
            leader.close(session)
        later.resolve(_respond(core, group_id, results, call.listener))

    core.slices.run(steps(), later.fail)
    return later.now()


def _respond(
    core: "BrokerCore", group_id: str, results: Mapping[TopicIdPartition, KafkaError | None], listener: str
) -> ShareAcknowledgeResponse:
    topics: dict[bytes, list[PartitionData]] = {}
    for (topic_id, index), error in results.items():
        partition = PartitionData(partition_index=index)
        if error is not None:
            partition.error_code = error.code
            partition.error_message = error.message or error.code.name
            if error.code in LEADER_ERRORS:
                topic = core.topics.by_id(topic_id)
                epoch = topic.partitions[index].log.leader_epoch if topic is not None else -1
                partition.current_leader = LeaderIdAndEpoch(leader_id=core.node_id, leader_epoch=epoch)
        topics.setdefault(topic_id, []).append(partition)
    return ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=lock_ms(core, group_id),
        responses=[
            ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
        node_endpoints=[_endpoint(core, listener)] if names_leader(*results.values()) else (),
    )


def _endpoint(core: "BrokerCore", listener: str) -> NodeEndpoint:
    host, port = core.address_of(listener)
    return NodeEndpoint(node_id=core.node_id, host=host, port=port)
