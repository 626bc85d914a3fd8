"""Places in logs: what offset has a name or a time, and deleting records before an offset. Asked of the leaders."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from headrace.client.admin.call import AdminCall, in_parallel, raise_for
from headrace.client.admin.results import ListedOffset, in_order, known
from headrace.client.arguments import is_int
from headrace.client.cluster import ANY
from headrace.client.delivery import TopicPartition
from headrace.client.errors import error_for
from headrace.wire.enums import OffsetSpec
from headrace.wire.error_groups import PASSING
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import TopicAndPartition
from headrace.wire.message import Message
from headrace.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.messages.delete_records_response import DeleteRecordsResponse
from headrace.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.messages.list_offsets_response import ListOffsetsResponse
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.wire.messages.metadata_response import MetadataResponse

T = TypeVar("T")
At = OffsetSpec | int | datetime
"""A named place, or a time: an aware datetime or milliseconds since 1970."""
Answers = Iterable[tuple[TopicPartition, int, T]]
"""Of each partition in a response its error code, and what it says if that is 0."""
Errors = dict[TopicAndPartition, KafkaError | None]
CLIENT_REPLICA = -1
"""Where a broker's fetcher would put its id."""


def as_timestamp(at: At) -> int:
    """The number that ListOffsets takes. ValueError for a datetime without a zone: nobody can tell when that is."""
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise ValueError(
                f"{at.isoformat()} has no time zone; use .astimezone() for local time or .replace(tzinfo=UTC)"
            )
        return int(at.timestamp() * 1000)
    if not isinstance(at, OffsetSpec) and (not is_int(at) or at < 0):
        raise ValueError(f"the time must be milliseconds since 1970, a datetime or an OffsetSpec, got {at!r}")
    return int(at)


async def list_offsets(
    call: AdminCall, wanted: Mapping[TopicAndPartition, At], *, committed: bool = False
) -> dict[TopicAndPartition, ListedOffset]:
    results, errors = await try_list_offsets(call, wanted, committed=committed, waits_for_leaders=True)
    raise_for(errors)
    return results


async def try_list_offsets(
    call: AdminCall,
    wanted: Mapping[TopicAndPartition, At],
    *,
    committed: bool = False,
    waits_for_leaders: bool = False,
) -> tuple[dict[TopicAndPartition, ListedOffset], Errors]:
    """What could be found out, and for each partition its error or None.

    `waits_for_leaders` waits for partitions that have no leader; they may be without one for long.
    """
    times = {place: as_timestamp(at) for place, at in wanted.items()}

    def request(places: list[TopicPartition]) -> Message:
        return ListOffsetsRequest(
            replica_id=CLIENT_REPLICA,
            isolation_level=int(committed),
            timeout_ms=call.request_ms,
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=index, timestamp=times[topic, index])
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(places).items()
            ],
        )

    def read(response: ListOffsetsResponse) -> Answers[ListedOffset]:
        for topic in response.topics:
            for one in topic.partitions:
                found = ListedOffset(known(one.offset), known(one.timestamp), known(one.leader_epoch))
                yield TopicPartition(topic.name, one.partition_index), one.error_code, found

    return await _ask_leaders(call, in_order(times), request, read, waits_for_leaders=waits_for_leaders)


async def delete_records(
    call: AdminCall, before: Mapping[TopicAndPartition, int]
) -> dict[TopicAndPartition, int]:
    offsets = {place: int(offset) for place, offset in before.items()}
    for place, offset in offsets.items():
        if offset < OffsetSpec.LATEST:
            raise ValueError(
                f"{place[0]}-{place[1]}: the offset must be >= 0, or LATEST to delete all records, got {offset}"
            )

    def request(places: list[TopicPartition]) -> Message:
        return DeleteRecordsRequest(
            timeout_ms=call.request_ms,
            topics=[
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsPartition(partition_index=index, offset=offsets[topic, index])
                        for index in indexes
                    ],
                )
                for topic, indexes in by_topic(places).items()
            ],
        )

    def read(response: DeleteRecordsResponse) -> Answers[int]:
        for topic in response.topics:
            for one in topic.partitions:
                yield TopicPartition(topic.name, one.partition_index), one.error_code, one.low_watermark

    results, errors = await _ask_leaders(call, in_order(offsets), request, read, waits_for_leaders=True)
    raise_for(errors)
    return results


async def _ask_leaders(
    call: AdminCall,
    places: list[TopicPartition],
    request: Callable[[list[TopicPartition]], Message],
    read: Callable[[Any], Answers[T]],
    *,
    waits_for_leaders: bool,
) -> tuple[dict[TopicAndPartition, T], Errors]:
    """One request to each leader; what fails for a reason that passes is asked again, of the leader of then."""
    results: dict[TopicAndPartition, T] = {}
    errors: Errors = dict.fromkeys(places)
    left = list(places)
    passing_codes = PASSING if waits_for_leaders else PASSING - {ErrorCode.LEADER_NOT_AVAILABLE}

    async def ask(node_id: int, some: list[TopicPartition]) -> None:
        try:
            answers = list(read(await call.send(node_id, request(some))))
        except KafkaError as error:
            errors.update(dict.fromkeys(some, error))
            return
        for place, code, result in answers:
            if code:
                errors[place] = _error(place, code)
            else:
                results[place], errors[place] = result, None

    async def attempt() -> None:
        leaders: dict[int, list[TopicPartition]] = {}
        for place, leader in (await _leaders(call, left, errors)).items():
            leaders.setdefault(leader, []).append(place)
        await in_parallel(ask(node_id, some) for node_id, some in leaders.items())
        failed = [(place, errors[place]) for place in left if place not in results]
        passing = [
            (place, error) for place, error in failed if error is not None and error.code in passing_codes
        ]
        left[:] = [place for place, _ in passing]
        if passing:
            raise passing[0][1]

    try:
        await call.retrying(attempt)
    except KafkaError as error:
        if not any(error is known_error for known_error in errors.values()):
            raise  # not even the leaders could be found out
    return results, errors


async def _leaders(
    call: AdminCall, places: list[TopicPartition], errors: Errors
) -> dict[TopicPartition, int]:
    """Who leads now; partitions that have no leader or are not there get their error."""
    topics = [MetadataRequestTopic(name=name) for name in by_topic(places)]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    response: MetadataResponse = await call.send(ANY, request)
    found = {
        (topic.name or "", one.partition_index): one.leader_id
        for topic in response.topics
        for one in topic.partitions
    }
    refused = {topic.name: topic.error_code for topic in response.topics if topic.error_code}
    leaders = {}
    for place in places:
        leader = found.get(place)
        if leader is None:
            errors[place] = _error(place, refused.get(place.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif leader < 0:
            errors[place] = _error(place, ErrorCode.LEADER_NOT_AVAILABLE)
        else:
            leaders[place] = leader
    if not call.cluster.nodes.keys() >= set(leaders.values()):
        await call.cluster.refresh()
    return leaders


def by_topic(places: Iterable[TopicAndPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    return topics


def _error(place: TopicPartition, code: int) -> KafkaError:
    return error_for(code, about=f"partition {place.partition} of topic {place.topic!r}")
