"""Produce (0), v3-v13: appends record batches to partitions; from v13 on topics are named by id.

acks=all answers after the group commit, acks=1 after the write has reached the operating system, acks=0 not at all (a
failure then closes the connection, so that the client looks at its metadata again). Batches of a transaction are
checked with the transaction coordinator first; from v12 on that also adds the partition (transaction.version 2).

Most batches are written as they come. Those whose records have to be opened (compacted topics, `compression.type`,
limits on the age of records) are prepared first: a few small ones at once, the others on a worker thread, one request
at a time. A request for many partitions is written over several turns of the loop. The connection's next requests wait
for that, so that nothing overtakes.
"""

import contextlib
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from headrace.broker import error_responses
from headrace.broker.call import Call, CloseConnection
from headrace.broker.later import Later
from headrace.log.config import LogConfig
from headrace.log.producers import AppendOrigin
from headrace.log.validation import InvalidRecords, Prepared, TooMuch, prepare
from headrace.wire.batches import (
    ATTRIBUTES_AT,
    COMPRESSION_MASK,
    FRAME,
    FRAME_SIZE,
    HEADER_SIZE,
    MAGIC,
    MAGIC_AT,
    TRANSACTIONAL,
    BatchHeader,
    Compression,
    read_header,
)
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import TopicAndPartition, uuid_text
from headrace.wire.message import Message
from headrace.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.produce_response import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.topics import Partition, Topic
    from headrace.log.partition_log import PartitionLog

VERSIONS = (3, 13)
TAKES_MANY = True
TOPIC_IDS_SINCE = 13
IMPLICIT_ADD_SINCE = 12
ABORTABLE_SINCE = 11
ZSTD_SINCE = 7
ALL, NONE = -1, 0
PARTITIONS_PER_STEP = 40
"""Partitions that are written to in one turn of the loop."""
FIRST_WRITE_COST = 3
"""The first write to a partition, or after a crash, makes files: it counts for so many."""
JOINED_TOGETHER = 1_000
"""Partitions that join a transaction with one record of the journal."""
OPENED_AT_ONCE_MAX = 10
"""Batches that are opened in one turn of the loop."""
FLAGS_AT = ATTRIBUTES_AT + 1
ADMIN_CLIENT_ID = "__admin_client"
"""Kafka's tools give themselves this client id; it alone may write to internal topics."""


def handle(core: "BrokerCore", request: ProduceRequest, call: Call) -> "Answer":
    if request.acks not in (-1, 0, 1):
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.acks}; use -1 (all), 0 or 1")
    if core.failure is not None:
        core.require_working()
    produce = _Produce(core, request, call)
    return produce.write() if produce.is_small() else produce.write_in_steps()


class _Opening:
    """One partition's batch whose records have to be opened."""

    def __init__(self, records: bytes, config: LogConfig, now_ms: int) -> None:
        self._records = records
        self._config = config
        self._now_ms = now_ms
        self.prepared: Prepared | None = None
        self.error: KafkaError | None = None

    def prepare(self, *, at_leisure: bool) -> None:
        try:
            self.prepared = prepare(
                self._records,
                self._config,
                now_ms=self._now_ms,
                origin=AppendOrigin.CLIENT,
                at_leisure=at_leisure,
            )
        except KafkaError as error:
            self.error = error


Sent = tuple[TopicProduceData, PartitionProduceData]
Answer = ProduceResponse | Later[ProduceResponse] | None


class _Produce:
    """One request on its way to its answer."""

    __slots__ = ("_call", "_core", "_found", "_now_ms", "_opened", "_passed", "_request", "_written")

    def __init__(self, core: "BrokerCore", request: ProduceRequest, call: Call) -> None:
        self._core = core
        self._request = request
        self._call = call
        self._now_ms = core.clock.wall_ms()
        self._found: list[Topic | None] = []
        """The topics that `is_small` has looked up, for the rest of this turn of the loop."""
        self._opened: dict[int, _Opening] = {}
        """By the identity of the request's partition data."""
        self._written: list[PartitionLog] = []
        self._passed = 0

    def is_small(self) -> bool:
        """Whether one turn of the loop is enough, as nearly always."""
        partitions = 0
        for topic in self._request.topic_data:
            found = self._topic(topic)
            if found is not None and _opens_records(found):
                return False
            self._found.append(found)
            partitions += len(topic.partition_data)
        return partitions * FIRST_WRITE_COST <= PARTITIONS_PER_STEP

    def write(self) -> Answer:
        responses = []
        if self._request.transactional_id is not None:
            self._join([(topic, data) for topic in self._request.topic_data for data in topic.partition_data])
        for topic, found in zip(self._request.topic_data, self._found, strict=True):
            results = [self._append(found, data) for data in topic.partition_data]
            responses.append(_topic_response(topic, results))
        return self._answer(responses)

    def write_in_steps(self) -> Answer:
        large = self._open()
        sent = [(topic, data) for topic in self._request.topic_data for data in topic.partition_data]
        answer: Later[ProduceResponse] = Later()
        answer.is_exclusive = True

        def work() -> None:
            for one in large:
                one.prepare(at_leisure=True)

        def write(error: Exception | None) -> None:
            if error is not None:
                answer.fail(error)
                return
            self._now_ms = self._core.clock.wall_ms()
            self._core.slices.each(sent, append, per_step=PARTITIONS_PER_STEP, cost=self._cost).then(
                written, answer.fail
            )

        def append(one: Sent) -> PartitionProduceResponse:
            topic, data = one
            if self._request.transactional_id is not None:
                self._join_in_time(sent)
            return self._append(self._topic(topic), data)  # looked up now: it may have been deleted since

        def written(results: list[PartitionProduceResponse]) -> None:
            rest = iter(results)
            try:
                response = self._answer(
                    [
                        _topic_response(topic, [*islice(rest, len(topic.partition_data))])
                        for topic in self._request.topic_data
                    ]
                )
            except Exception as refusal:
                answer.fail(refusal)
                return
            if isinstance(response, Later):
                response.then(answer.resolve, answer.fail)
                answer.share()
            else:
                answer.resolve(response)  # type: ignore[arg-type]  # None: with acks=0 nobody waits for it

        if large:
            self._core.opening.run(work, write)
        else:
            write(None)
        return answer.now()

    def _open(self) -> list[_Opening]:
        """Opens what has to be opened; returns what of it still needs a worker."""
        large: list[_Opening] = []
        for topic in self._request.topic_data:
            found = self._topic(topic)
            if found is None or not _opens_records(found):
                continue
            for data in topic.partition_data:
                try:
                    config = self._partition(found, data.index).log.config
                    opening = self._opened[id(data)] = _Opening(
                        _one_batch(data.records, self._call.api_version), config, self._now_ms
                    )
                except (KafkaError, OSError):
                    continue  # whoever writes it tells
                if not self._open_at_once(opening):
                    large.append(opening)
        return large

    def _open_at_once(self, opening: _Opening) -> bool:
        """False: a worker has to do it."""
        if len(self._opened) > OPENED_AT_ONCE_MAX:
            return False
        try:
            opening.prepare(at_leisure=False)
        except TooMuch:
            return False
        return True

    def _append(self, topic: "Topic | None", data: PartitionProduceData) -> PartitionProduceResponse:
        core = self._core
        try:
            if core.failure is not None:
                core.require_working()
            partition = self._partition(topic, data.index)
            log = partition.log
            if partition.topic.is_internal:
                self._check_internal(partition)
            records = _one_batch(data.records, self._call.api_version)
            if records[FLAGS_AT] & TRANSACTIONAL:
                self._check_transaction(partition, read_header(records))
            prepared = self._prepared(data) if self._opened else None
            appended = log.append(records, now_ms=self._now_ms, prepared=prepared)
        except KafkaError as error:
            core.note_refused_write(error)
            return _refused(data.index, error)
        except OSError as error:
            core.fail(error)
            return _refused(data.index, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        self._written.append(log)
        core.appended(partition)
        if not appended.is_duplicate:
            core.count_produced(
                partition.topic.name, appended.last_offset - appended.base_offset + 1, len(records)
            )
        return PartitionProduceResponse(
            index=data.index,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.append_time_ms,
            log_start_offset=log.start_offset,
        )

    def _join_in_time(self, sent: Sequence[Sent]) -> None:
        """Before each partition is written: every so many times, those that come next join."""
        if self._passed % JOINED_TOGETHER == 0:
            self._join(sent[self._passed : self._passed + JOINED_TOGETHER])
        self._passed += 1

    def _join(self, sent: Sequence[Sent]) -> None:
        """Partitions join the transaction together: each journal record of it names all that have.

        A refusal is told by each partition for itself (`_check_transaction`).
        """
        transactional_id, version = self._request.transactional_id, self._call.api_version
        if version < IMPLICIT_ADD_SINCE or len(sent) < 2:
            return
        joining: dict[tuple[int, int], list[TopicAndPartition]] = {}
        for topic, data in sent:
            with contextlib.suppress(KafkaError):
                partition = self._partition(self._topic(topic), data.index)
                header = read_header(_one_batch(data.records, version))
                if header.is_transactional and not partition.topic.is_internal:
                    producer = header.producer_id, header.producer_epoch
                    joining.setdefault(producer, []).append((partition.topic.name, partition.index))
        for producer, places in joining.items():
            with contextlib.suppress(KafkaError):
                self._core.transactions.verify_or_add(transactional_id, *producer, places, may_add=True)

    def _check_internal(self, partition: "Partition") -> None:
        if self._call.client_id != ADMIN_CLIENT_ID:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"only the broker writes to {partition.topic.name}"
            )

    def _check_transaction(self, partition: "Partition", batch: BatchHeader) -> None:
        transactional_id = self._request.transactional_id
        if transactional_id is None:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                "a transactional batch needs the transactional id in its request",
            )
        version = self._call.api_version
        self._core.transactions.verify_or_add(
            transactional_id,
            batch.producer_id,
            batch.producer_epoch,
            [(partition.topic.name, partition.index)],
            may_add=version >= IMPLICIT_ADD_SINCE,
            knows_abortable=version >= ABORTABLE_SINCE,
        )
        if (
            version >= IMPLICIT_ADD_SINCE
            and batch.base_sequence != 0
            and batch.producer_id not in partition.log.producer_states.entries
        ):
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"The partition knows no batch of producer {batch.producer_id}: the first of a transaction has "
                f"sequence number 0, not {batch.base_sequence}.",
            )

    def _prepared(self, data: PartitionProduceData) -> Prepared | None:
        opened = self._opened.get(id(data))
        if opened is None:
            return None
        if opened.error is not None:
            raise opened.error
        return opened.prepared

    def _cost(self, one: Sent) -> int:
        topic, data = one
        try:
            log = self._partition(self._topic(topic), data.index).opened_log
        except KafkaError:
            return 1
        return FIRST_WRITE_COST if log is None or log.makes_files else 1

    def _answer(self, responses: list[TopicProduceResponse]) -> Answer:
        """Once everything has been appended or refused."""
        response = ProduceResponse(responses=responses)
        acks = self._request.acks
        if acks == NONE:
            _close_if_refused(response)
            return None
        if acks == ALL and self._written:
            durable = self._core.durable(self._written)
            return response if durable.is_done else durable.map(lambda _: response)
        return response

    def _topic(self, topic: TopicProduceData) -> "Topic | None":
        if self._call.api_version < TOPIC_IDS_SINCE:
            return self._core.topics.get(topic.name)
        return self._core.topics.by_id(topic.topic_id)

    def _partition(self, topic: "Topic | None", index: int) -> "Partition":
        if topic is None and self._call.api_version >= TOPIC_IDS_SINCE:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        if topic is None or not 0 <= index < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic.partitions[index]


def _opens_records(topic: "Topic") -> bool:
    """All partitions of a topic have the same settings."""
    try:
        return topic.partitions[0].log.config.opens_records
    except (KafkaError, OSError):
        return False  # whoever writes it tells


def _topic_response(topic: TopicProduceData, results: list[PartitionProduceResponse]) -> TopicProduceResponse:
    return TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results)


def _close_if_refused(response: ProduceResponse) -> None:
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                name = topic.name or uuid_text(topic.topic_id)
                raise CloseConnection(
                    f"records for {name}-{partition.index} sent with acks=0 were refused: "
                    f"{ErrorCode(partition.error_code).name} {partition.error_message or ''}".rstrip()
                )


def _one_batch(records: bytes | None, version: int) -> bytes:
    """A request of v3 or later has exactly one batch of format 2 for a partition. The log checks the rest."""
    size = len(records or b"")
    if records is None or size < HEADER_SIZE:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{size} bytes are too short for a record batch")
    rest = size - FRAME_SIZE - FRAME.unpack_from(records)[1]
    magic = records[MAGIC_AT]
    if magic > MAGIC or 0 < rest < HEADER_SIZE:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"the records are not a record batch of format {MAGIC}")
    if magic < MAGIC or rest:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"expected exactly one record batch of format {MAGIC}")
    if version < ZSTD_SINCE and records[FLAGS_AT] & COMPRESSION_MASK == Compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd requires Produce v{ZSTD_SINCE} or later"
        )
    return records


def _refused(index: int, error: KafkaError) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=-1,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=record, batch_index_error_message=why)
            for record, why in (error.record_errors if isinstance(error, InvalidRecords) else ())
        ],
        error_message=error.message,
        current_leader=LeaderIdAndEpoch(),
    )


def error_response(request: ProduceRequest, code: ErrorCode, message: str | None, call: Call) -> Message:
    if request.acks == NONE:
        raise CloseConnection(
            f"a produce request with acks=0 was refused: {code.name} {message or ''}".rstrip()
        )
    return error_responses.error_response(request, code, message, call.api_version)
