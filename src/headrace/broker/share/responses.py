"""The response to a ShareFetch, as it comes together; and what it has in common with that to a ShareAcknowledge."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.broker.share.loaded import Handed
from headrace.share.session import ShareSession
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import TopicIdPartition
from headrace.wire.messages import share_fetch_response as fetch

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

LEADER_ERRORS = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class ShareFetchResult:
    """What a ShareFetch has got so far, and the response that says so."""

    def __init__(self, core: "BrokerCore", group_id: str, listener: str) -> None:
        self._core = core
        self._listener = listener
        self._group_id = group_id
        self._acknowledged: Mapping[TopicIdPartition, KafkaError | None] = {}
        self._handed: dict[TopicIdPartition, Handed] = {}
        self._errors: dict[TopicIdPartition, KafkaError] = {}
        self._denied: dict[TopicIdPartition, KafkaError] = {}
        self._has_passed_over = False

    @property
    def has_news(self) -> bool:
        """Whether there is a reason to respond before the time is up."""
        return bool(self._handed or self._errors or self._has_passed_over)

    def acknowledged(self, results: Mapping[TopicIdPartition, KafkaError | None]) -> None:
        self._acknowledged = results

    def handed(self, place: TopicIdPartition, handed: Handed) -> None:
        self._handed[place] = handed

    def failed(self, place: TopicIdPartition, error: KafkaError) -> None:
        self._errors[place] = error

    def denied(self, places: Sequence[TopicIdPartition]) -> None:
        """The client may not read these. That is no reason to respond at once: there may be others to wait for."""
        if places:
            self._denied = dict.fromkeys(places, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED))

    def passed_over(self) -> None:
        """What was read are records that are deleted, compacted or aborted. There may be more behind them: such a
        fetch gets an empty response at once.
        """
        self._has_passed_over = True

    def has_failed(self, place: TopicIdPartition) -> bool:
        return place in self._errors

    def partitions(self, session: ShareSession) -> list[TopicIdPartition]:
        """Those that the response lists."""
        if self._denied:
            self._errors.update(self._denied)
        news = {**self._acknowledged, **self._handed, **self._errors}
        places = [place for place in session.partitions if place in news or session.must_list(place)]
        return places + [place for place in news if place not in session]

    def response(self, places: Iterable[TopicIdPartition]) -> fetch.ShareFetchResponse:
        topics: dict[bytes, list[fetch.PartitionData]] = {}
        for place in places:
            topics.setdefault(place[0], []).append(self._partition(place))
        response = fetch.ShareFetchResponse(
            acquisition_lock_timeout_ms=lock_ms(self._core, self._group_id),
            responses=[
                fetch.ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )
        if names_leader(*self._errors.values(), *self._acknowledged.values()):
            host, port = self._core.address_of(self._listener)
            response.node_endpoints = [fetch.NodeEndpoint(node_id=self._core.node_id, host=host, port=port)]
        return response

    def _partition(self, place: TopicIdPartition) -> fetch.PartitionData:
        error = self._errors.get(place)
        refused = self._acknowledged.get(place)
        handed = self._handed.get(place)
        partition = fetch.PartitionData(partition_index=place[1], records=b"")
        if handed is not None:
            partition.records = handed.records
            partition.acquired_bytes = handed.left_out
            partition.acquired_records = [
                fetch.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                for first, last, count in handed.acquired
            ]
        if error is not None:
            partition.error_code = error.code
            partition.error_message = error.message
        if refused is not None:
            partition.acknowledge_error_code = refused.code
            partition.acknowledge_error_message = refused.message or refused.code.name
        if (error is not None or refused is not None) and names_leader(error, refused):
            partition.current_leader = fetch.LeaderIdAndEpoch(
                leader_id=self._core.node_id, leader_epoch=self._epoch(place)
            )
        return partition

    def _epoch(self, place: TopicIdPartition) -> int:
        topic = self._core.topics.by_id(place[0])
        return topic.partitions[place[1]].log.leader_epoch if topic is not None else -1


def lock_ms(core: "BrokerCore", group_id: str) -> int:
    return core.settings.group_int(group_id, "share.record.lock.duration.ms")


def names_leader(*errors: KafkaError | None) -> bool:
    return any(error is not None and error.code in LEADER_ERRORS for error in errors)
