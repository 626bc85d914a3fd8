"""Fetch (1), v4-v18: records by partition and offset, as slices of the log.

The answer waits until MinBytes are there, an error is to be told, or MaxWaitMs have passed; until then it is parked on
its partitions and woken by appends. From v7 on with sessions (see fetch_sessions.py), from v13 on by topic id.
The first batch of the first partition that has one is returned whatever its size, so that every client gets on. While
clients do not read what they have asked for, answers are smaller (see outgoing.py).
"""

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.epochs import check_leader_epoch
from headrace.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchSession, WantedPartition
from headrace.broker.later import Later
from headrace.broker.security.acls import may_topic
from headrace.wire.acls import CLUSTER_NAME, AclOperation, AclResourceType
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.fetch_request import FetchRequest
from headrace.wire.messages.fetch_response import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.topics import Partition

VERSIONS = (4, 18)
TAKES_MANY = True
TOPIC_IDS_SINCE = 13
REPLICA_STATE_SINCE = 15
LEADER_HINTS_SINCE = 16
READ_COMMITTED = 1
PARTITIONS_PER_STEP = 500
"""Partitions that are read in one turn of the loop."""
UNKNOWN_ERRORS = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handle(core: "BrokerCore", request: FetchRequest, call: Call) -> FetchResponse | Later[FetchResponse]:
    session, wanted = _resolve_session(core, request, call)
    fetch = _Fetch(core, request, call, session, list(wanted))
    if request.max_wait_ms <= 0 or not fetch.wanted or fetch.has_enough():
        return fetch.read()
    return fetch.park()


def _resolve_session(
    core: "BrokerCore", request: FetchRequest, call: Call
) -> tuple[FetchSession | None, Iterable[WantedPartition]]:
    uses_topic_ids = call.api_version >= TOPIC_IDS_SINCE
    wanted = _wanted(request)
    now_ms = core.clock.monotonic_ms()
    if request.session_epoch == FINAL_EPOCH:
        core.fetch_sessions.close(request.session_id)
        return None, wanted
    if request.session_epoch == INITIAL_EPOCH:
        core.fetch_sessions.close(request.session_id)
        session = core.fetch_sessions.open(uses_topic_ids=uses_topic_ids, now_ms=now_ms)
        if session is None:
            return None, wanted
        core.fetch_sessions.update(session, wanted)
        return session, session.partitions.values()
    session = core.fetch_sessions.advance(
        request.session_id, request.session_epoch, uses_topic_ids=uses_topic_ids, now_ms=now_ms
    )
    forgotten = [
        (topic.topic, topic.topic_id, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]
    core.fetch_sessions.update(session, wanted, forgotten)
    return session, session.partitions.values()


def _wanted(request: FetchRequest) -> list[WantedPartition]:
    return [
        WantedPartition(
            topic.topic,
            topic.topic_id,
            partition.partition,
            fetch_offset=partition.fetch_offset,
            max_bytes=partition.partition_max_bytes,
            leader_epoch=partition.current_leader_epoch,
        )
        for topic in request.topics
        for partition in topic.partitions
    ]


def _denied(
    core: "BrokerCore", request: FetchRequest, call: Call, wanted: Iterable[WantedPartition]
) -> Collection[tuple[str, bytes]]:
    if core.access is None:
        return ()
    topics = {(each.topic_name, each.topic_id) for each in wanted}
    replica = (
        request.replica_state.replica_id if call.api_version >= REPLICA_STATE_SINCE else request.replica_id
    )
    if replica >= 0:
        # Brokers read everything, or nothing.
        cluster = (AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME)
        return () if core.access.allows(call, *cluster) else topics
    return {topic for topic in topics if not _may_read(core, call, *topic)}


def _may_read(core: "BrokerCore", call: Call, name: str, topic_id: bytes) -> bool:
    if call.api_version >= TOPIC_IDS_SINCE:
        topic = core.topics.by_id(topic_id)
        return topic is None or may_topic(core, call, AclOperation.READ, topic.name)
    return may_topic(core, call, AclOperation.READ, name)


class _Fetch:
    """One fetch request on its way to its answer."""

    def __init__(
        self,
        core: "BrokerCore",
        request: FetchRequest,
        call: Call,
        session: FetchSession | None,
        wanted: list[WantedPartition],
    ) -> None:
        self.core = core
        self.request = request
        self.call = call
        self.session = session
        self.is_first_of_session = request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)
        self.wanted = wanted
        self.denied = _denied(core, request, call, wanted)
        """Topics that the client may not read. Decided once: a fetch that waits keeps its permission, as in Kafka."""
        self.committed = request.isolation_level == READ_COMMITTED
        self.left = 0
        """Bytes that the answer still has room for."""
        self.is_first = True
        """No partition has given records yet."""
        self.needs_leader = False
        self.topics: dict[tuple[str, bytes], list[PartitionData]] = {}

    def partition(self, wanted: WantedPartition) -> "Partition":
        if self.denied and self.is_denied(wanted):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if self.call.api_version >= TOPIC_IDS_SINCE:
            topic = self.core.topics.by_id(wanted.topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            if not 0 <= wanted.index < len(topic.partitions):
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return topic.partitions[wanted.index]
        return self.core.topics.require(wanted.topic_name, wanted.index)

    def is_denied(self, wanted: WantedPartition) -> bool:
        return (wanted.topic_name, wanted.topic_id) in self.denied

    def readable(self) -> list[WantedPartition]:
        """What is worth waiting for: all of it, unless the client may not read some."""
        if not self.denied:
            return self.wanted
        return [wanted for wanted in self.wanted if not self.is_denied(wanted)]

    def has_enough(self) -> bool:
        """Whether there is something to answer before the time is up."""
        missing = self.request.min_bytes
        readable = self.readable()
        if not readable:
            return True
        for wanted in readable:
            try:
                log = self.partition(wanted).log
                check_leader_epoch(log, wanted.leader_epoch)
                if not log.start_offset <= wanted.fetch_offset <= log.end_offset:
                    return True
                missing -= log.reader.bytes_from(
                    wanted.fetch_offset, limit=min(wanted.max_bytes, missing), committed=self.committed
                )
            except KafkaError:
                return True
            if missing <= 0:
                return True
        return False

    def park(self) -> Later[FetchResponse]:
        later: Later[FetchResponse] = Later()

        def finish() -> None:
            leave()
            try:
                response = self.read()
            except Exception as error:
                later.fail(error)
                return
            if isinstance(response, Later):
                response.then(later.resolve, later.fail)
            else:
                later.resolve(response)

        def attempt() -> None:
            try:
                is_due = self.has_enough()
            except Exception:  # reading fails in the same way, and tells the client
                is_due = True
            if is_due:
                finish()

        def leave() -> None:
            timer.cancel()
            self.core.parked.remove(place)

        place = self.core.parked.park({self.partition(wanted) for wanted in self.readable()}, attempt)
        timer = self.core.timers.at(self.core.clock.monotonic_ms() + self.request.max_wait_ms, finish)
        later.on_abandon = leave
        return later

    def read(self) -> FetchResponse | Later[FetchResponse]:
        """The answer; of very many partitions it takes several turns of the loop."""
        self.left = min(
            self.request.max_bytes,
            self.core.settings.get_int("fetch.max.bytes"),
            self.core.outgoing.allowance(),
        )
        if len(self.wanted) > PARTITIONS_PER_STEP:
            read = self.core.slices.each(self.wanted, self.read_next, per_step=PARTITIONS_PER_STEP)
            return read.map(lambda _: self.response())
        for wanted in self.wanted:
            self.read_next(wanted)
        return self.response()

    def read_next(self, wanted: WantedPartition) -> None:
        data = self.read_partition(wanted, self.left, self.is_first)
        size = len(data.records or b"")
        if size:
            self.left -= size
            self.is_first = False
            if self.session is not None:
                self.session.move_to_end(wanted)
        if data.error_code in LEADER_ERRORS:
            self.needs_leader = True
        if self.is_news(wanted, data):
            self.topics.setdefault((wanted.topic_name, wanted.topic_id), []).append(data)

    def response(self) -> FetchResponse:
        return FetchResponse(
            session_id=self.session.id if self.session is not None else 0,
            responses=[
                FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=partitions)
                for (name, topic_id), partitions in self.topics.items()
            ],
            node_endpoints=[self._leader()]
            if self.needs_leader and self.call.api_version >= LEADER_HINTS_SINCE
            else (),
        )

    def _leader(self) -> NodeEndpoint:
        host, port = self.core.address_of(self.call.listener)
        return NodeEndpoint(node_id=self.core.node_id, host=host, port=port)

    def read_partition(self, wanted: WantedPartition, left: int, is_first: bool) -> PartitionData:
        try:
            log = self.partition(wanted).log
            check_leader_epoch(log, wanted.leader_epoch)
            read = log.reader.read(
                wanted.fetch_offset,
                max_bytes=max(0, min(wanted.max_bytes, left)),
                committed=self.committed,
                at_least_one=is_first,
            )
        except KafkaError as error:
            return self.refused(wanted, error.code)
        if read.data:
            self.core.count_fetched(log.topic, len(read.data))
        return PartitionData(
            partition_index=wanted.index,
            high_watermark=log.end_offset,
            last_stable_offset=log.stable_offset,
            log_start_offset=log.start_offset,
            aborted_transactions=(
                [
                    AbortedTransaction(producer_id=producer, first_offset=first)
                    for producer, first in read.aborted
                ]
                if self.committed
                else None
            ),
            records=read.data,
        )

    def refused(self, wanted: WantedPartition, code: ErrorCode) -> PartitionData:
        leader = LeaderIdAndEpoch()
        if code in LEADER_ERRORS:
            log = self.partition(wanted).log
            leader = LeaderIdAndEpoch(leader_id=self.core.node_id, leader_epoch=log.leader_epoch)
        return PartitionData(
            partition_index=wanted.index,
            error_code=code,
            high_watermark=-1,
            current_leader=leader,
            aborted_transactions=[] if self.committed or code in UNKNOWN_ERRORS else None,
        )

    def is_news(self, wanted: WantedPartition, data: PartitionData) -> bool:
        """Inside a session, a partition with nothing new is left out of the answer."""
        is_news = bool(
            data.records
            or data.error_code
            or data.high_watermark != wanted.known_high_watermark
            or data.log_start_offset != wanted.known_start_offset
        )
        wanted.known_high_watermark = data.high_watermark
        wanted.known_start_offset = data.log_start_offset
        return is_news or self.session is None or self.is_first_of_session
