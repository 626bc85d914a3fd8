"""The nine handlers of transactions on the fake core: what a version asks and what it is told."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headrace.broker.call import Call
from headrace.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    error_response,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)
from headrace.broker.later import Later
from headrace.wire.codec import encode, read_message
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import partition_for
from headrace.wire.message import Message
from headrace.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from headrace.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.wire.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from headrace.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.messages.end_txn_request import EndTxnRequest
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.list_transactions_request import ListTransactionsRequest
from headrace.wire.messages.offset_commit_key import OffsetCommitKey
from headrace.wire.messages.offset_commit_value import OffsetCommitValue
from headrace.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.unit.broker.transactions.fake_core import FakeCore

HANDLERS: dict[int, Any] = {
    22: init_producer_id,
    24: add_partitions_to_txn,
    25: add_offsets_to_txn,
    26: end_txn,
    27: write_txn_markers,
    28: txn_offset_commit,
    61: describe_producers,
    65: describe_transactions,
    66: list_transactions,
}


def ask(core: FakeCore, request: Message, version: int) -> Any:
    """Through the codec both ways, so that only what the version can carry arrives and leaves."""
    handler = HANDLERS[request.API_KEY]
    low, high = handler.VERSIONS
    assert low <= version <= high
    assert (low, high) == type(request).VERSIONS
    arrived, _ = read_message(type(request), version, encode(request, version))
    call = Call(api_version=version)
    try:
        response = handler.handle(core, arrived, call)
    except KafkaError as error:
        response = error_response(arrived, error.code, error.message, call)
    if isinstance(response, Later):
        response = response.value
    left, _ = read_message(type(response), version, encode(response, version))
    return left


def initialize(core: FakeCore, transactional_id: str | None = "t", version: int = 5, **fields: int) -> Any:
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000, **fields
    )
    return ask(core, request, version)


def add_partitions(
    core: FakeCore,
    producer: Any,
    *partitions: int,
    topic: str = "orders",
    version: int = 3,
    epoch: int | None = None,
) -> list[int]:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="t",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch if epoch is None else epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=partitions)],
    )
    (result,) = ask(core, request, version).results_by_topic_v3_and_below
    assert [each.partition_index for each in result.results_by_partition] == list(partitions)
    return [each.partition_error_code for each in result.results_by_partition]


def end(
    core: FakeCore, producer: Any, version: int = 5, *, commit: bool = True, epoch: int | None = None
) -> Any:
    request = EndTxnRequest(
        transactional_id="t",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch if epoch is None else epoch,
        committed=commit,
    )
    return ask(core, request, version)


class TestInitProducerId:
    @pytest.mark.parametrize("version", range(6))
    def test_a_producer_without_transactions_gets_an_id_of_its_own(
        self, core: FakeCore, version: int
    ) -> None:
        first, second = initialize(core, None, version), initialize(core, None, version)
        assert (first.error_code, first.producer_epoch) == (0, 0)
        assert first.producer_id != second.producer_id

    @pytest.mark.parametrize("transactional_id", [None, "t"])
    def test_no_id_is_given_out_before_it_is_safe_from_a_power_cut(
        self, core: FakeCore, transactional_id: str | None
    ) -> None:
        core.hold()
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        answer = init_producer_id.handle(core, request, Call(api_version=5))  # type: ignore[arg-type]
        assert isinstance(answer, Later)
        assert not answer.is_done
        core.sync_all()
        assert answer.value.producer_id >= 0

    @pytest.mark.parametrize("version", range(6))
    def test_a_transactional_id_keeps_its_producer_id(self, core: FakeCore, version: int) -> None:
        first, second = initialize(core, "t", version), initialize(core, "t", version)
        assert first.producer_id == second.producer_id
        assert (first.producer_epoch, second.producer_epoch) == (0, 1)

    def test_an_open_transaction_is_aborted_first(self, core: FakeCore) -> None:
        producer = initialize(core)
        add_partitions(core, producer, 0)
        answer = initialize(core)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (
            ErrorCode.CONCURRENT_TRANSACTIONS,
            -1,
            -1,
        )
        assert initialize(core).producer_epoch == 2

    @pytest.mark.parametrize(
        ("version", "code"), [(3, ErrorCode.INVALID_PRODUCER_EPOCH), (4, ErrorCode.PRODUCER_FENCED)]
    )
    def test_a_fenced_producer_is_told_in_words_it_knows(
        self, core: FakeCore, version: int, code: ErrorCode
    ) -> None:
        old = initialize(core)
        initialize(core)
        answer = initialize(core, version=version, producer_id=old.producer_id, producer_epoch=0)
        assert (answer.error_code, answer.producer_id) == (code, -1)

    @pytest.mark.parametrize("fields", [{"producer_id": 5}, {"producer_epoch": 5}])
    def test_half_an_identity_is_refused(self, core: FakeCore, fields: dict[str, int]) -> None:
        assert initialize(core, **fields).error_code == ErrorCode.INVALID_REQUEST

    def test_an_empty_transactional_id_is_refused(self, core: FakeCore) -> None:
        assert initialize(core, "").error_code == ErrorCode.INVALID_REQUEST


class TestAddPartitionsToTxn:
    @pytest.mark.parametrize("version", range(4))
    def test_partitions_join(self, core: FakeCore, version: int) -> None:
        producer = initialize(core)
        assert add_partitions(core, producer, 0, 2, version=version) == [0, 0]
        described = core.transactions.describe("t")
        assert described is not None
        assert described.partitions == {("orders", 0), ("orders", 2)}

    def test_one_unknown_partition_keeps_all_out(self, core: FakeCore) -> None:
        producer = initialize(core)
        assert add_partitions(core, producer, 0, 9) == [
            ErrorCode.OPERATION_NOT_ATTEMPTED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]

    def test_a_client_may_not_add_internal_topics(self, core: FakeCore) -> None:
        producer = initialize(core)
        codes = add_partitions(core, producer, 0, topic="__transaction_state")
        assert codes == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]

    @pytest.mark.parametrize(
        ("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)]
    )
    def test_a_fenced_producer_is_told_in_words_it_knows(
        self, core: FakeCore, version: int, code: ErrorCode
    ) -> None:
        producer = initialize(core)
        assert add_partitions(core, producer, 0, 1, version=version, epoch=99) == [code, code]

    def batch(
        self, core: FakeCore, version: int, *transactions: AddPartitionsToTxnTransaction
    ) -> dict[str, list[int]]:
        response = ask(core, AddPartitionsToTxnRequest(transactions=transactions), version)
        assert response.error_code == 0
        return {
            result.transactional_id: [
                partition.partition_error_code
                for topic in result.topic_results
                for partition in topic.results_by_partition
            ]
            for result in response.results_by_transaction
        }

    @pytest.mark.parametrize("version", [4, 5])
    def test_brokers_add_and_verify_many_transactions_at_once(self, core: FakeCore, version: int) -> None:
        first, second = initialize(core, "t"), initialize(core, "u")

        def of(
            name: str, producer: Any, partitions: Sequence[int], *, verify: bool
        ) -> AddPartitionsToTxnTransaction:
            return AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                verify_only=verify,
                topics=[AddPartitionsToTxnTopic(name="orders", partitions=partitions)],
            )

        added = self.batch(
            core,
            version,
            of("t", first, [0], verify=False),
            of("u", second, [1], verify=False),
            of("nobody", first, [1], verify=False),
        )
        assert added == {"t": [0], "u": [0], "nobody": [ErrorCode.INVALID_PRODUCER_ID_MAPPING]}
        verified = self.batch(
            core, version, of("t", first, [0, 1], verify=True), of("u", first, [1], verify=True)
        )
        assert verified == {
            "t": [0, ErrorCode.TRANSACTION_ABORTABLE],
            "u": [ErrorCode.INVALID_PRODUCER_ID_MAPPING],
        }

    @pytest.mark.parametrize("version", [3, 5])
    def test_a_request_that_fails_as_a_whole_has_an_answer(self, version: int) -> None:
        topics = [AddPartitionsToTxnTopic(name="orders", partitions=[4])]
        request = AddPartitionsToTxnRequest(v3_and_below_topics=topics)
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        response = add_partitions_to_txn.error_response(request, code, None, Call(api_version=version))
        if version > 3:
            assert response.error_code == code
        else:
            (topic,) = response.results_by_topic_v3_and_below
            assert topic.results_by_partition[0].partition_error_code == code


class TestAddOffsetsToTxn:
    def add(self, core: FakeCore, producer: Any, version: int, epoch: int) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id="t", producer_id=producer.producer_id, producer_epoch=epoch, group_id="g"
        )
        return int(ask(core, request, version).error_code)

    @pytest.mark.parametrize("version", range(5))
    def test_the_groups_partition_joins(self, core: FakeCore, version: int) -> None:
        producer = initialize(core)
        assert self.add(core, producer, version, 0) == 0
        described = core.transactions.describe("t")
        assert described is not None
        assert described.partitions == {("__consumer_offsets", partition_for("g", 50))}

    @pytest.mark.parametrize(
        ("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)]
    )
    def test_a_fenced_producer_is_told_in_words_it_knows(
        self, core: FakeCore, version: int, code: ErrorCode
    ) -> None:
        assert self.add(core, initialize(core), version, 99) == code


class TestEndTxn:
    @pytest.mark.parametrize("version", range(5))
    @pytest.mark.parametrize("commit", [True, False])
    def test_an_old_client_ends_its_transaction(self, core: FakeCore, version: int, commit: bool) -> None:
        producer = initialize(core)
        add_partitions(core, producer, 0)
        assert end(core, producer, version, commit=commit).error_code == 0
        assert [(marker.commit, marker.producer_epoch) for marker in core.markers("orders")] == [(commit, 0)]
        add_partitions(core, producer, 0)
        assert end(core, producer, version, commit=not commit).error_code == 0

    def test_a_new_client_gets_its_next_epoch(self, core: FakeCore) -> None:
        producer = initialize(core)
        add_partitions(core, producer, 0)
        answer = end(core, producer)
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, producer.producer_id, 1)

    def test_an_error_brings_no_identity(self, core: FakeCore) -> None:
        answer = end(core, initialize(core))
        assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (
            ErrorCode.INVALID_TXN_STATE,
            -1,
            -1,
        )

    @pytest.mark.parametrize(
        ("version", "code"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)]
    )
    def test_a_fenced_producer_is_told_in_words_it_knows(
        self, core: FakeCore, version: int, code: ErrorCode
    ) -> None:
        producer = initialize(core)
        add_partitions(core, producer, 0)
        assert end(core, producer, version, epoch=99).error_code == code


class TestTxnOffsetCommit:
    def commit(
        self, core: FakeCore, producer: Any, version: int, partitions: Sequence[int] = (0,), epoch: int = 0
    ) -> dict[int, int]:
        request = TxnOffsetCommitRequest(
            transactional_id="t",
            group_id="g",
            producer_id=producer.producer_id,
            producer_epoch=epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="orders",
                    partitions=[
                        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=7)
                        for index in partitions
                    ],
                )
            ],
        )
        response = ask(core, request, version)
        return {
            each.partition_index: each.error_code for topic in response.topics for each in topic.partitions
        }

    def test_a_new_client_needs_no_other_request(self, core: FakeCore) -> None:
        producer = initialize(core)
        assert self.commit(core, producer, 5) == {0: 0}
        (entry,) = core.groups.commits
        assert isinstance(entry.value, OffsetCommitValue)
        assert entry.value.offset == 7
        place = "__consumer_offsets", partition_for("g", 50)
        described = core.transactions.describe("t")
        assert described is not None
        assert described.partitions == {place}
        end(core, producer)
        assert core.groups.completed == [(producer.producer_id, place[1], True)]

    @pytest.mark.parametrize(
        ("version", "code"),
        [(version, ErrorCode.INVALID_TXN_STATE) for version in range(4)]
        + [(4, ErrorCode.TRANSACTION_ABORTABLE)],
    )
    def test_an_old_client_must_have_added_the_group(
        self, core: FakeCore, version: int, code: ErrorCode
    ) -> None:
        producer = initialize(core)
        assert self.commit(core, producer, version) == {0: code}
        assert core.groups.commits == []
        TestAddOffsetsToTxn().add(core, producer, 3, 0)
        assert self.commit(core, producer, version) == {0: 0}

    def test_unknown_partitions_are_refused_and_the_others_kept(self, core: FakeCore) -> None:
        producer = initialize(core)
        codes = self.commit(core, producer, 5, [0, 9])
        assert codes == {0: 0, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        (entry,) = core.groups.commits
        assert isinstance(entry.key, OffsetCommitKey)
        assert entry.key.partition == 0

    def test_only_unknown_partitions_touch_nothing(self, core: FakeCore) -> None:
        producer = initialize(core)
        assert self.commit(core, producer, 5, [9]) == {9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert core.groups.commits == []

    @pytest.mark.parametrize("version", range(6))
    def test_a_fenced_producer_hears_of_its_epoch(self, core: FakeCore, version: int) -> None:
        producer = initialize(core)
        assert self.commit(core, producer, version, epoch=99) == {0: ErrorCode.INVALID_PRODUCER_EPOCH}


class TestWriteTxnMarkers:
    @pytest.mark.parametrize("version", [1, 2])
    def test_markers_are_written_whatever_the_coordinator_thinks(self, core: FakeCore, version: int) -> None:
        core.topics.internal("__consumer_offsets")
        marker = WritableTxnMarker(
            producer_id=70,
            producer_epoch=2,
            transaction_result=False,
            coordinator_epoch=4,
            topics=[
                WritableTxnMarkerTopic(name="orders", partition_indexes=[1, 9]),
                WritableTxnMarkerTopic(name="__consumer_offsets", partition_indexes=[3]),
            ],
        )
        response = ask(core, WriteTxnMarkersRequest(markers=[marker]), version)
        (result,) = response.markers
        assert result.producer_id == 70
        codes = [(topic.name, each.error_code) for topic in result.topics for each in topic.partitions]
        assert codes == [
            ("orders", 0),
            ("orders", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ("__consumer_offsets", 0),
        ]
        assert [(each.producer_epoch, each.coordinator_epoch) for each in core.markers("orders", 1)] == [
            (2, 4)
        ]
        assert core.groups.completed == [(70, 3, False)]

    def test_a_refused_marker_is_told_for_its_partition(self, core: FakeCore) -> None:
        core.write((70, 5), "orders", 0)
        topics = [WritableTxnMarkerTopic(name="orders", partition_indexes=[0, 1])]
        marker = WritableTxnMarker(producer_id=70, producer_epoch=2, topics=topics)
        (result,) = ask(core, WriteTxnMarkersRequest(markers=[marker]), 1).markers
        codes = [each.error_code for each in result.topics[0].partitions]
        assert codes == [ErrorCode.INVALID_PRODUCER_EPOCH, 0]


class TestDescribe:
    def test_a_transaction_in_all_its_parts(self, core: FakeCore) -> None:
        producer = initialize(core)
        add_partitions(core, producer, 2, 0)
        request = DescribeTransactionsRequest(transactional_ids=["t", "nobody", ""])
        known, unknown, empty = ask(core, request, 0).transaction_states
        assert known.error_code == 0
        assert (known.transactional_id, known.transaction_state) == ("t", "Ongoing")
        assert (known.transaction_timeout_ms, known.transaction_start_time_ms) == (
            60_000,
            core.clock.wall_ms(),
        )
        assert (known.producer_id, known.producer_epoch) == (producer.producer_id, 0)
        assert [(topic.topic, topic.partitions) for topic in known.topics] == [("orders", [0, 2])]
        assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert empty.error_code == ErrorCode.INVALID_REQUEST

    def test_producers_of_a_partition(self, core: FakeCore) -> None:
        core.write((70, 5), "orders", 1)
        topics = [
            TopicRequest(name="orders", partition_indexes=[1, 9]),
            TopicRequest(name="no such name!", partition_indexes=[0]),
        ]
        known, misnamed = ask(core, DescribeProducersRequest(topics=topics), 0).topics
        (producer,) = known.partitions[0].active_producers
        assert (producer.producer_id, producer.producer_epoch, producer.current_txn_start_offset) == (
            70,
            5,
            0,
        )
        assert known.partitions[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert misnamed.partitions[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


class TestListTransactions:
    @pytest.fixture(autouse=True)
    def some(self, core: FakeCore) -> None:
        for name in ("t", "u", "u2"):
            initialize(core, name)
        add_partitions(core, initialize(core, "t"), 0)
        core.advance(1000)

    def listed(self, core: FakeCore, version: int = 2, **filters: Any) -> list[str]:
        response = ask(core, ListTransactionsRequest(**filters), version)
        assert response.error_code == 0
        return [each.transactional_id for each in response.transaction_states]

    @pytest.mark.parametrize("version", range(3))
    def test_without_filters_all(self, core: FakeCore, version: int) -> None:
        assert self.listed(core, version) == ["t", "u", "u2"]

    def test_by_state(self, core: FakeCore) -> None:
        assert self.listed(core, state_filters=["Ongoing"]) == ["t"]
        assert self.listed(core, state_filters=["Empty", "Ongoing"]) == ["t", "u", "u2"]

    def test_an_unknown_state_is_named_and_finds_nothing(self, core: FakeCore) -> None:
        response = ask(core, ListTransactionsRequest(state_filters=["Busy"]), 0)
        assert response.unknown_state_filters == ["Busy"]
        assert response.transaction_states == []

    def test_by_producer_id(self, core: FakeCore) -> None:
        described = core.transactions.describe("u")
        assert described is not None
        assert self.listed(core, producer_id_filters=[described.producer_id]) == ["u"]

    def test_by_duration(self, core: FakeCore) -> None:
        assert "t" in self.listed(core, 1, duration_filter=999)
        assert "t" not in self.listed(core, 1, duration_filter=1000)

    def test_by_pattern_of_the_whole_id(self, core: FakeCore) -> None:
        assert self.listed(core, transactional_id_pattern="u") == ["u"]
        assert self.listed(core, transactional_id_pattern="u.*") == ["u", "u2"]
        assert self.listed(core, transactional_id_pattern="") == ["t", "u", "u2"]

    def test_a_pattern_that_is_none(self, core: FakeCore) -> None:
        response = ask(core, ListTransactionsRequest(transactional_id_pattern="("), 2)
        assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


REQUESTS: list[Callable[[], Message]] = [
    lambda: InitProducerIdRequest(),
    lambda: AddPartitionsToTxnRequest(),
    lambda: AddOffsetsToTxnRequest(),
    lambda: EndTxnRequest(),
    lambda: TxnOffsetCommitRequest(topics=[TxnOffsetCommitRequestTopic(name="orders")]),
    lambda: WriteTxnMarkersRequest(markers=[WritableTxnMarker(producer_id=1)]),
    lambda: DescribeTransactionsRequest(transactional_ids=["t"]),
    lambda: ListTransactionsRequest(),
    lambda: DescribeProducersRequest(topics=[TopicRequest(name="orders", partition_indexes=[0])]),
]


@pytest.mark.parametrize("make", REQUESTS, ids=lambda make: type(make()).__name__)
def test_every_handler_can_answer_a_failure_in_every_version(make: Callable[[], Message]) -> None:
    request = make()
    handler = HANDLERS[request.API_KEY]
    low, high = handler.VERSIONS
    for version in range(low, high + 1):
        call = Call(api_version=version)
        response = error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR, "why", call)
        assert encode(response, version)
