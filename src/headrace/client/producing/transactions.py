"""The requests of a transactional producer: who it is, what belongs to the transaction, how it ends.

With transaction.version 2 (KIP-890) partitions and groups become part of the transaction by being written to, and the
coordinator raises the epoch with every end. Before that both are named to it first (AddPartitionsToTxn,
AddOffsetsToTxn), and the producer asks for a new epoch after every abort.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.client.arguments import require_offset
from headrace.client.cluster import GROUP_COORDINATOR, TRANSACTION_COORDINATOR, retry_backoff
from headrace.client.delivery import TopicPartition
from headrace.client.errors import (
    BrokerNotAvailableError,
    ConnectionLost,
    RequestTimeoutError,
    error_for,
    is_retriable,
)
from headrace.client.producing.batch import Identity
from headrace.client.producing.queue import SendOutcome
from headrace.client.producing.transaction import Event, Transaction, TransactionPhase
from headrace.wire.error_groups import COORDINATOR_MOVED
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import Message
from headrace.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from headrace.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.wire.messages.end_txn_request import EndTxnRequest
from headrace.wire.messages.end_txn_response import EndTxnResponse
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.init_producer_id_response import InitProducerIdResponse
from headrace.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

if TYPE_CHECKING:
    from headrace.client.producing.driver import ProducerDriver

INIT_PRODUCER_ID_VERSION = 5
VERSIONS_BEFORE_2 = {"produce": 11, "end": 4, "offsets": 4}
OFFSETS_BY_NAME_MAX = 5
"""The last version of TxnOffsetCommit that names topics; newer ones know their IDs only."""
ADD_PARTITIONS_VERSION = 3
"""The highest for clients; brokers use those after it among themselves."""


class Transactions:
    def __init__(self, driver: "ProducerDriver") -> None:
        self.transaction = Transaction()
        self.produce_version_max: int | None = None
        self._driver = driver
        self._id = driver.settings.transactional_id
        self._identity: Identity | None = None
        self._is_version_2 = True
        self._has_offsets = False
        self._is_ended = False
        """The coordinator has ended the transaction, and a new identity is still to be had."""

    @property
    def needs_abort(self) -> bool:
        return self.transaction.state is TransactionPhase.FAILED

    async def begin(self) -> None:
        """The first call fences producers of the same transactional id and aborts what they have left open."""
        if self.transaction.state is not TransactionPhase.READY:
            self.transaction.move(Event.BEGIN)
        await self._driver.start()
        if self._identity is None:
            await self._identify()
        await self._learn_version()
        self.transaction.move(Event.BEGIN)

    async def commit(self) -> None:
        self.transaction.move(Event.COMMIT)
        await self._driver.flush()
        if self.transaction.state is TransactionPhase.FAILED:
            self.transaction.move(Event.COMMIT)  # which says why not
        await self._end(is_commit=True)

    async def abort(self) -> None:
        self.transaction.move(Event.ABORT)
        driver = self._driver
        driver.core.abandon(error_for(ErrorCode.TRANSACTION_ABORTABLE, "the transaction was aborted"))
        await driver.flush()
        await driver.until_quiet()
        await self._end(is_commit=False)

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, int],
        group_id: str,
        *,
        member_id: str = "",
        generation_id: int = -1,
        group_instance_id: str | None = None,
    ) -> None:
        """Commits a consumer group's offsets with the transaction: the next record to be read, by partition."""
        for place, offset in offsets.items():
            require_offset(place, offset)
        self.transaction.move(Event.SEND)
        assert self._identity is not None
        producer_id, epoch = self._identity
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in offsets.items():
            topics.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
            )
        commit = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            generation_id_or_member_epoch=generation_id,
            member_id=member_id,
            group_instance_id=group_instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        try:
            if not self._is_version_2:
                add = AddOffsetsToTxnRequest(
                    transactional_id=self._id,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    group_id=group_id,
                )
                await self._ask(add, _error_code)
            self._has_offsets = True
            version_max = OFFSETS_BY_NAME_MAX if self._is_version_2 else VERSIONS_BEFORE_2["offsets"]
            await self._ask(commit, _worst_offset_code, group_id=group_id, version_max=version_max)
        except KafkaError as error:
            self.transaction.fail(error)
            raise

    async def close(self) -> None:
        """An open transaction is aborted: nobody could commit it any more."""
        if self.transaction.is_open and self.transaction.state is not TransactionPhase.COMMITTING:
            await self.abort()

    async def register(self) -> None:
        """Names partitions to the coordinator before the first record goes there."""
        core = self._driver.core
        queues = core.unregistered()
        assert self._identity is not None
        topics: dict[str, list[int]] = {}
        for queue in queues:
            topics.setdefault(queue.topic, []).append(queue.index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._identity.producer_id,
            v3_and_below_producer_epoch=self._identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        try:
            await self._ask(request, _worst_partition_code, version_max=ADD_PARTITIONS_VERSION)
        except KafkaError as error:
            self._fail(error)
        else:
            core.registered(queues)

    def check(self, outcomes: list[SendOutcome]) -> list[SendOutcome]:
        """A record that failed fails its transaction, and with it the records that wait. Returns those."""
        failure = self._driver.core.pop_failure()
        for outcome in outcomes:
            failure = failure or outcome.error
        if failure is None or self.transaction.state is TransactionPhase.READY:
            return []
        self._fail(failure)
        return self._driver.core.pop_outcomes()

    def _fail(self, error: KafkaError) -> None:
        self.transaction.fail(error)
        text = f"the transaction has failed: {error.text}"
        self._driver.core.abandon(error_for(ErrorCode.TRANSACTION_ABORTABLE, text))

    async def _learn_version(self) -> None:
        node_id = await self._driver.cluster.coordinator(self._id, TRANSACTION_COORDINATOR)
        connection = await self._driver.cluster.question_connection(node_id)
        self._is_version_2 = connection.features.get("transaction.version", 0) >= 2
        self.produce_version_max = None if self._is_version_2 else VERSIONS_BEFORE_2["produce"]
        self._driver.core.register_partitions(not self._is_version_2)

    async def _identify(self) -> None:
        """A new epoch, or a new producer id. The coordinator ends what is open under an older one."""
        known = self._identity or Identity(-1, -1)
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=self._driver.settings.transaction_timeout_ms,
            producer_id=known.producer_id,
            producer_epoch=known.epoch,
        )
        response: InitProducerIdResponse = await self._ask(
            request, _error_code, version_max=INIT_PRODUCER_ID_VERSION
        )
        self._identity = Identity(response.producer_id, response.producer_epoch)
        self._driver.core.next_transaction(self._identity)

    async def _end(self, *, is_commit: bool) -> None:
        assert self._identity is not None
        core = self._driver.core
        try:
            if (core.has_transaction() or self._has_offsets) and not self._is_ended:
                await self._end_at_coordinator(is_commit=is_commit)
                self._is_ended = True
            if not is_commit and not self._is_version_2:
                await self._identify()
        except KafkaError as error:
            if not is_retriable(error.code):
                self.transaction.fail(error)
            raise
        core.next_transaction(self._identity)
        self._has_offsets = self._is_ended = False
        self.transaction.move(Event.ENDED)

    async def _end_at_coordinator(self, *, is_commit: bool) -> None:
        assert self._identity is not None
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.epoch,
            committed=is_commit,
        )
        version_max = None if self._is_version_2 else VERSIONS_BEFORE_2["end"]
        response: EndTxnResponse = await self._ask(request, _error_code, version_max=version_max)
        if self._is_version_2 and response.producer_id >= 0:
            self._identity = Identity(response.producer_id, response.producer_epoch)

    async def _ask(
        self,
        request: Message,
        code_of: Callable[[Any], int],
        *,
        group_id: str | None = None,
        version_max: int | None = None,
    ) -> Any:
        """Asks the coordinator until it has an answer that does not pass, for at most max.block.ms."""
        cluster, settings = self._driver.cluster, self._driver.settings
        key, key_type = (
            (self._id, TRANSACTION_COORDINATOR) if group_id is None else (group_id, GROUP_COORDINATOR)
        )
        about = f"transactional id {self._id!r}" if group_id is None else f"group {group_id!r}"
        loop = asyncio.get_running_loop()
        retry = retry_backoff(settings, loop.time() + settings.max_block_ms / 1000)
        while True:
            refusal: KafkaError
            try:
                node_id = await cluster.coordinator(key, key_type)
                response = await cluster.send(node_id, request, version_max=version_max)
            except (BrokerNotAvailableError, ConnectionLost, RequestTimeoutError) as error:
                refusal = error
                cluster.forget_coordinator(key, key_type)
            else:
                code = code_of(response)
                if not code:
                    return response
                refusal = error_for(code, about=about)
                if code in COORDINATOR_MOVED:
                    cluster.forget_coordinator(key, key_type)
            wait_s = retry.wait_s(loop.time())
            if not is_retriable(refusal.code) or wait_s is None:
                raise refusal
            await asyncio.sleep(wait_s)


def _error_code(response: Any) -> int:
    return int(response.error_code)


def _worst_offset_code(response: Any) -> int:
    return _worst(each.error_code for topic in response.topics for each in topic.partitions)


def _worst_partition_code(response: Any) -> int:
    return _worst(
        each.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    )


def _worst(codes: Any) -> int:
    """One that does not pass, if there is one: OPERATION_NOT_ATTEMPTED only says that another partition failed."""
    found = [code for code in codes if code]
    found.sort(key=lambda code: (code == ErrorCode.OPERATION_NOT_ATTEMPTED, is_retriable(code)))
    return found[0] if found else 0
