"""What ShareFetch and ShareAcknowledge have in common on the way out: results by partition, in topics."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.broker.share.loaded import Handed
from headrace.share.session import ShareSession
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import share_acknowledge_response as acknowledge
from headrace.wire.messages import share_fetch_response as fetch

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
TopicPartition = tuple[bytes, int]


class FetchAnswer:
    """The parts of a ShareFetch response as they come together."""

    def __init__(self, core: "BrokerCore", group_id: str) -> None:
        self._core = core
        self._group_id = group_id
        self._acknowledged: Mapping[TopicPartition, KafkaError | None] = {}
        self._handed: dict[TopicPartition, Handed] = {}
        self._errors: dict[TopicPartition, KafkaError] = {}
        self._has_passed_over = False

    @property
    def has_news(self) -> bool:
        """Whether there is a reason to answer before the time is up."""
        return bool(self._handed or self._errors or self._has_passed_over)

    def acknowledged(self, results: Mapping[TopicPartition, KafkaError | None]) -> None:
        self._acknowledged = results

    def handed(self, place: TopicPartition, handed: Handed) -> None:
        self._handed[place] = handed

    def failed(self, place: TopicPartition, error: KafkaError) -> None:
        self._errors[place] = error

    def passed_over(self, place: TopicPartition) -> None:
        """What was read are records that are deleted, compacted or aborted. There may be more behind them: such a
        fetch is answered at once, with nothing.
        """
        self._has_passed_over = True

    def response(self, session: ShareSession) -> fetch.ShareFetchResponse:
        news = {**self._acknowledged, **self._handed, **self._errors}
        places = [place for place in session.partitions if place in news or session.must_list(place)]
        places += [place for place in news if place not in session]
        topics: dict[bytes, list[fetch.PartitionData]] = {}
        for place in places:
            topics.setdefault(place[0], []).append(self._partition(place))
            session.listed(place, has_error=place in self._errors)
        response = fetch.ShareFetchResponse(
            acquisition_lock_timeout_ms=lock_ms(self._core, self._group_id),
            responses=[
                fetch.ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )
        if _names_leader(*self._errors.values(), *self._acknowledged.values()):
            core = self._core
            response.node_endpoints = [
                fetch.NodeEndpoint(node_id=core.node_id, host=core.host, port=core.port)
            ]
        return response

    def _partition(self, place: TopicPartition) -> fetch.PartitionData:
        error = self._errors.get(place)
        refused = self._acknowledged.get(place)
        handed = self._handed.get(place)
        leader = fetch.LeaderIdAndEpoch()
        if _names_leader(error, refused):
            leader = fetch.LeaderIdAndEpoch(leader_id=self._core.node_id, leader_epoch=self._epoch(place))
        return fetch.PartitionData(
            partition_index=place[1],
            error_code=error.code if error is not None else 0,
            error_message=error.message if error is not None else None,
            acknowledge_error_code=refused.code if refused is not None else 0,
            acknowledge_error_message=(refused.message or refused.code.name) if refused is not None else None,
            current_leader=leader,
            records=handed.records if handed is not None else b"",
            acquired_records=[
                fetch.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                for first, last, count in handed.acquired
            ]
            if handed is not None
            else (),
            acquired_bytes=handed.left_out if handed is not None else 0,
        )

    def _epoch(self, place: TopicPartition) -> int:
        topic = self._core.topics.by_id(place[0])
        return topic.partitions[place[1]].log.leader_epoch if topic is not None else -1


def acknowledge_response(
    core: "BrokerCore", group_id: str, results: Mapping[TopicPartition, KafkaError | None]
) -> acknowledge.ShareAcknowledgeResponse:
    topics: dict[bytes, list[acknowledge.PartitionData]] = {}
    for (topic_id, index), error in results.items():
        leader = acknowledge.LeaderIdAndEpoch()
        if error is not None and error.code in LEADER_ERRORS:
            topic = core.topics.by_id(topic_id)
            epoch = topic.partitions[index].log.leader_epoch if topic is not None else -1
            leader = acknowledge.LeaderIdAndEpoch(leader_id=core.node_id, leader_epoch=epoch)
        topics.setdefault(topic_id, []).append(
            acknowledge.PartitionData(
                partition_index=index,
                error_code=error.code if error is not None else 0,
                error_message=(error.message or error.code.name) if error is not None else None,
                current_leader=leader,
            )
        )
    return acknowledge.ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=lock_ms(core, group_id),
        responses=[
            acknowledge.ShareAcknowledgeTopicResponse(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in topics.items()
        ],
        node_endpoints=[acknowledge.NodeEndpoint(node_id=core.node_id, host=core.host, port=core.port)]
        if _names_leader(*results.values())
        else (),
    )


def lock_ms(core: "BrokerCore", group_id: str) -> int:
    return core.settings.group_int(group_id, "share.record.lock.duration.ms")


def _names_leader(*errors: KafkaError | None) -> bool:
    codes = {error.code for error in errors if error is not None}
    return bool(codes) and not codes.isdisjoint(LEADER_ERRORS)
