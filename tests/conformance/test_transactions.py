"""Transactions as clients before transaction version 2 run them: add partitions, produce, end (KIP-98)."""

import time
from typing import Any

import pytest

from headrace.wire.batches import read_header
from headrace.wire.errors import ErrorCode
from headrace.wire.records import read_marker
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.steps import (
    READ_COMMITTED,
    add_partitions,
    batch,
    batches,
    commit_in_transaction,
    committed,
    describe_transaction,
    end_offset,
    end_transaction,
    fetch,
    fetch_request,
    init_producer,
    join_named,
    new_topic,
    produce,
    produced,
    stable_group,
    transactional_batch,
    values,
    wait_for,
    wait_for_state,
)
from tests.conformance.wire_client import WireClient

Producer = tuple[int, int]
OLD = 11
"""The newest Produce version that does not add its partitions to the transaction by itself."""


@pytest.fixture
def topic(wire: WireClient, unique: str) -> str:
    new_topic(wire, unique, partitions=2)
    return unique


@pytest.fixture
def producer(wire: WireClient, unique: str) -> Producer:
    return init_producer(wire, unique)


def write(
    wire: WireClient,
    name: str,
    producer: Producer,
    topic: str,
    sequence: int,
    *records: str,
    partition: int = 0,
) -> int:
    """Adds the partition and produces to it; the offset of the first record."""
    assert add_partitions(wire, name, producer, topic, partition) == 0
    data = transactional_batch(producer, sequence, *records)
    return produced(wire, topic, data, partition=partition, transactional_id=name, version=OLD)


def end(wire: WireClient, name: str, producer: Producer, *, commit: bool) -> None:
    """Ends the transaction and waits until its markers are written."""
    assert end_transaction(wire, name, producer, commit=commit).error_code == 0
    wait_for_state(wire, name, "CompleteCommit" if commit else "CompleteAbort")


def read(wire: WireClient, topic: str, offset: int = 0, partition: int = 0) -> Any:
    return fetch(wire, topic, offset, partition=partition, isolation=READ_COMMITTED)


def init_code(wire: WireClient, name: str | None, timeout_ms: int = 60_000, **fields: Any) -> int:
    response = wire.ask(
        "init_producer_id", 5, transactional_id=name, transaction_timeout_ms=timeout_ms, **fields
    )
    return int(response.error_code)


# Records and markers


def test_committed_records_are_there_for_all(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    assert write(wire, unique, producer, topic, 0, "a", "b") == 0
    end(wire, unique, producer, commit=True)
    answer = read(wire, topic)
    data, marker = batches(answer.records)
    assert values(data) == [b"a", b"b"]
    assert (answer.last_stable_offset, answer.high_watermark, answer.aborted_transactions) == (3, 3, [])
    header = read_header(marker)
    assert (header.is_control, header.is_transactional, header.base_offset) == (True, True, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (*producer, -1)
    found = read_marker(marker)
    assert found is not None
    assert (found.is_commit, found.coordinator_epoch) == (True, 0)


def test_an_open_transaction_is_not_read_as_committed(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    produced(wire, topic, batch("before"))
    assert write(wire, unique, producer, topic, 0, "open") == 1
    produced(wire, topic, batch("behind it"))
    answer = read(wire, topic)
    assert (answer.last_stable_offset, answer.high_watermark) == (1, 3)
    assert values(answer.records) == [b"before"]
    assert values(fetch(wire, topic, 0).records) == [b"before", b"open", b"behind it"]
    # Waiting for the next committed record is not waiting for the next record.
    begun = time.monotonic()
    waiting = fetch(wire, topic, 1, isolation=READ_COMMITTED, max_wait_ms=200)
    assert (waiting.records, time.monotonic() - begun >= 0.19) == (b"", True)


def test_an_aborted_transaction_is_told_of(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    produced(wire, topic, batch("before"))
    write(wire, unique, producer, topic, 0, "never")
    end(wire, unique, producer, commit=False)
    answer = read(wire, topic)
    assert [(one.producer_id, one.first_offset) for one in answer.aborted_transactions] == [(producer[0], 1)]
    assert answer.last_stable_offset == 3
    found = read_marker(batches(answer.records)[-1])
    assert found is not None
    assert not found.is_commit
    # The bytes are there for the client to leave out; where none of them are read, none are told of.
    assert values(answer.records)[:2] == [b"before", b"never"]
    assert fetch(wire, topic, 0).aborted_transactions is None
    assert read(wire, topic, 3).aborted_transactions == []


def test_a_reader_that_waits_is_woken_by_the_commit(
    wire: WireClient, connect: Any, unique: str, topic: str, producer: Producer
) -> None:
    write(wire, unique, producer, topic, 0, "open")
    reader = connect()
    reader.post_ask("fetch", 12, **fetch_request(topic, 0, isolation=READ_COMMITTED, max_wait_ms=15_000))
    end(wire, unique, producer, commit=True)
    answer = reader.receive().responses[0].partitions[0]
    assert values(batches(answer.records)[0]) == [b"open"]


def test_the_oldest_open_transaction_holds_back_the_rest(wire: WireClient, unique: str, topic: str) -> None:
    names = [f"{unique}-{number}" for number in range(2)]
    first, second = (init_producer(wire, name) for name in names)
    write(wire, names[0], first, topic, 0, "first")
    write(wire, names[1], second, topic, 0, "second")
    end(wire, names[1], second, commit=True)
    assert read(wire, topic).last_stable_offset == 0
    end(wire, names[0], first, commit=False)
    answer = read(wire, topic)
    assert answer.last_stable_offset == 4
    assert [(one.producer_id, one.first_offset) for one in answer.aborted_transactions] == [(first[0], 0)]


def test_markers_are_written_to_every_partition(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    for partition in (0, 1):
        write(wire, unique, producer, topic, 0, "value", partition=partition)
    end(wire, unique, producer, commit=True)
    assert [end_offset(wire, topic, partition, isolation=READ_COMMITTED) for partition in (0, 1)] == [2, 2]


def test_a_partition_that_was_added_and_not_written_to_gets_a_marker_too(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    assert add_partitions(wire, unique, producer, topic, 0) == 0
    end(wire, unique, producer, commit=True)
    assert end_offset(wire, topic) == 1


def test_one_transaction_after_another(wire: WireClient, unique: str, topic: str, producer: Producer) -> None:
    for number, is_commit in enumerate([True, False, True]):
        write(wire, unique, producer, topic, number, str(number))
        end(wire, unique, producer, commit=is_commit)
    answer = read(wire, topic)
    assert [(one.producer_id, one.first_offset) for one in answer.aborted_transactions] == [(producer[0], 2)]
    assert (answer.last_stable_offset, len(batches(answer.records))) == (6, 6)


def test_a_batch_of_a_transaction_is_taken_once(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    write(wire, unique, producer, topic, 0, "a")
    again = transactional_batch(producer, 0, "a")
    assert produced(wire, topic, again, transactional_id=unique, version=OLD) == 0
    assert end_offset(wire, topic) == 1


# What is refused


@pytest.mark.parametrize(
    ("version", "code"), [(10, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)]
)
def test_a_partition_must_be_added_before_it_is_written_to(
    wire: WireClient, unique: str, topic: str, producer: Producer, version: int, code: ErrorCode
) -> None:
    data = transactional_batch(producer, 0, "value")
    answer = produce(wire, topic, data, transactional_id=unique, version=version)
    assert (ErrorCode(answer.error_code), answer.base_offset) == (code, -1)
    assert end_offset(wire, topic) == 0


def test_records_outside_a_transaction_do_not_go_into_an_open_one(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    write(wire, unique, producer, topic, 0, "a")
    plain = batch("b", producer_id=producer[0], producer_epoch=producer[1], base_sequence=1)
    assert produce(wire, topic, plain).error_code == ErrorCode.INVALID_TXN_STATE


def test_an_unknown_partition_is_not_added_and_neither_are_the_others(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    response = wire.ask(
        "add_partitions_to_txn",
        3,
        v3_and_below_transactional_id=unique,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[{"name": topic, "partitions": [0, 5]}],
    )
    codes = {
        one.partition_index: one.partition_error_code
        for one in response.results_by_topic_v3_and_below[0].results_by_partition
    }
    assert codes == {0: ErrorCode.OPERATION_NOT_ATTEMPTED, 5: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert describe_transaction(wire, unique).transaction_state == "Empty"


def test_a_producer_that_is_not_ours_is_refused(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    stranger = (producer[0] + 1_000_000, 0)
    mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert add_partitions(wire, unique, stranger, topic) == mapping
    assert end_transaction(wire, unique, stranger, commit=True).error_code == mapping
    assert add_partitions(wire, f"{unique}-not", producer, topic) == mapping
    assert end_transaction(wire, f"{unique}-not", producer, commit=True).error_code == mapping


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_a_transaction_that_has_not_begun_cannot_be_ended(
    wire: WireClient, unique: str, producer: Producer, is_commit: bool
) -> None:
    response = end_transaction(wire, unique, producer, commit=is_commit)
    assert response.error_code == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_an_end_may_be_sent_again_but_not_another_one(
    wire: WireClient, unique: str, topic: str, producer: Producer, is_commit: bool
) -> None:
    write(wire, unique, producer, topic, 0, "value")
    end(wire, unique, producer, commit=is_commit)
    assert end_transaction(wire, unique, producer, commit=is_commit).error_code == 0
    other = end_transaction(wire, unique, producer, commit=not is_commit)
    assert other.error_code == ErrorCode.INVALID_TXN_STATE
    assert end_offset(wire, topic) == 2


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_bounds_is_refused(wire: WireClient, unique: str, timeout_ms: int) -> None:
    assert init_code(wire, unique, timeout_ms) == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_a_transactional_id_must_not_be_empty(wire: WireClient) -> None:
    assert init_code(wire, "") == ErrorCode.INVALID_REQUEST


def test_a_transactional_batch_needs_its_id(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    add_partitions(wire, unique, producer, topic)
    answer = produce(wire, topic, transactional_batch(producer, 0, "value"), version=OLD)
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


# Fencing


def test_a_producer_that_starts_again_fences_its_former_self(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    write(wire, unique, producer, topic, 0, "lost")
    later = init_producer(wire, unique)
    # The open transaction was aborted first, which took one epoch more.
    assert later == (producer[0], producer[1] + 2)
    assert end_offset(wire, topic, isolation=READ_COMMITTED) == 2
    assert add_partitions(wire, unique, producer, topic) == ErrorCode.PRODUCER_FENCED
    fenced = end_transaction(wire, unique, producer, commit=True)
    assert fenced.error_code == ErrorCode.PRODUCER_FENCED
    data = transactional_batch(producer, 1, "late")
    answer = produce(wire, topic, data, transactional_id=unique, version=OLD)
    assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert write(wire, unique, later, topic, 0, "new") == 2


def test_old_clients_hear_of_an_epoch_instead(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    init_producer(wire, unique)
    response = wire.ask(
        "end_txn",
        1,
        transactional_id=unique,
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=True,
    )
    assert response.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_producer_may_ask_for_a_new_epoch_itself(wire: WireClient, unique: str, producer: Producer) -> None:
    # KIP-360: to go on after an error that lost its sequence numbers.
    later = init_producer(wire, unique, producer_id=producer[0], producer_epoch=producer[1])
    assert later == (producer[0], producer[1] + 1)
    # The same request again, its answer was lost: the same epoch again.
    assert init_producer(wire, unique, producer_id=producer[0], producer_epoch=producer[1]) == later
    init_producer(wire, unique)
    code = init_code(wire, unique, producer_id=producer[0], producer_epoch=producer[1])
    assert code == ErrorCode.PRODUCER_FENCED


def test_a_producer_id_without_its_epoch_is_refused(
    wire: WireClient, unique: str, producer: Producer
) -> None:
    assert init_code(wire, unique, producer_id=producer[0]) == ErrorCode.INVALID_REQUEST
    assert init_code(wire, unique, producer_epoch=0) == ErrorCode.INVALID_REQUEST


def test_a_transaction_that_takes_too_long_is_aborted(wire: WireClient, unique: str, topic: str) -> None:
    producer = init_producer(wire, unique, timeout_ms=200)
    write(wire, unique, producer, topic, 0, "too slow")
    wait_for_state(wire, unique, "CompleteAbort")
    answer = read(wire, topic)
    assert (answer.last_stable_offset, len(answer.aborted_transactions)) == (2, 1)
    late = end_transaction(wire, unique, producer, commit=True)
    assert late.error_code == ErrorCode.PRODUCER_FENCED
    data = transactional_batch(producer, 1, "late")
    refused = produce(wire, topic, data, transactional_id=unique, version=OLD)
    assert refused.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert init_producer(wire, unique, timeout_ms=200) == (producer[0], producer[1] + 2)


# Offsets in a transaction


def add_offsets(wire: WireClient, name: str, producer: Producer, group: str) -> int:
    response = wire.ask(
        "add_offsets_to_txn",
        3,
        transactional_id=name,
        producer_id=producer[0],
        producer_epoch=producer[1],
        group_id=group,
    )
    return int(response.error_code)


def test_offsets_count_when_the_transaction_is_committed(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    assert add_offsets(wire, unique, producer, unique) == 0
    assert commit_in_transaction(wire, unique, producer, unique, topic, 5, version=3) == 0
    assert committed(wire, unique, topic).committed_offset == -1
    end(wire, unique, producer, commit=True)
    assert committed(wire, unique, topic).committed_offset == 5


def test_offsets_are_for_members_of_the_generation(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    member_id = stable_group(wire, unique).member_id
    add_offsets(wire, unique, producer, unique)

    def code(member: str, generation: int) -> int:
        return commit_in_transaction(
            wire,
            unique,
            producer,
            unique,
            topic,
            5,
            version=3,
            member_id=member,
            generation_id_or_member_epoch=generation,
        )

    assert code(member_id, 2) == ErrorCode.ILLEGAL_GENERATION
    assert code("nobody", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code(member_id, 1) == 0
    # A client that does not know of members commits as it always did.
    assert code("", -1) == 0


def test_a_group_that_rebalances_takes_offsets_of_transactions_all_the_same(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    joined = join_named(wire, unique)
    add_offsets(wire, unique, producer, unique)
    code = commit_in_transaction(
        wire,
        unique,
        producer,
        unique,
        topic,
        5,
        version=3,
        member_id=joined.member_id,
        generation_id_or_member_epoch=1,
    )
    assert code == 0


def test_an_unknown_partition_takes_no_offsets(wire: WireClient, unique: str, producer: Producer) -> None:
    add_offsets(wire, unique, producer, unique)
    code = commit_in_transaction(wire, unique, producer, unique, f"{unique}-not", 5, version=3)
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# What is shown


def test_a_transaction_is_described_in_each_of_its_states(
    broker: BrokerUnderTest, wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    empty = describe_transaction(wire, unique)
    assert (empty.transaction_state, empty.topics, empty.transaction_start_time_ms) == ("Empty", [], -1)
    begun = broker.now_ms()
    write(wire, unique, producer, topic, 0, "value")
    ongoing = describe_transaction(wire, unique)
    assert (ongoing.transaction_state, ongoing.transaction_timeout_ms) == ("Ongoing", 60_000)
    assert [(one.topic, list(one.partitions)) for one in ongoing.topics] == [(topic, [0])]
    assert begun - 1000 <= ongoing.transaction_start_time_ms <= broker.now_ms()
    end(wire, unique, producer, commit=True)
    done = describe_transaction(wire, unique)
    assert (done.transaction_state, done.topics, done.producer_id) == ("CompleteCommit", [], producer[0])


def test_transactions_are_listed_by_what_they_are(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    def listed(version: int = 2, **filters: Any) -> list[str]:
        response = wire.ask("list_transactions", version, **filters)
        assert response.error_code == 0
        return [
            one.transaction_state for one in response.transaction_states if one.transactional_id == unique
        ]

    assert listed() == ["Empty"]
    write(wire, unique, producer, topic, 0, "value")
    assert listed(state_filters=["Ongoing"]) == ["Ongoing"]
    assert listed(state_filters=["Empty", "CompleteCommit"]) == []
    assert listed(producer_id_filters=[producer[0]]) == ["Ongoing"]
    assert listed(producer_id_filters=[producer[0] + 1_000_000]) == []
    assert listed(duration_filter=0) == ["Ongoing"]
    assert listed(duration_filter=3_600_000) == []
    assert listed(transactional_id_pattern=f"{unique[:20]}.*") == ["Ongoing"]
    assert listed(transactional_id_pattern="nobody.*") == []


def test_a_state_that_does_not_exist_is_named_as_unknown(wire: WireClient, unique: str) -> None:
    response = wire.ask("list_transactions", 2, state_filters=["Ongoing", "Asleep"])
    assert (response.error_code, response.unknown_state_filters) == (0, ["Asleep"])


def test_a_pattern_that_is_none_is_refused(wire: WireClient) -> None:
    response = wire.ask("list_transactions", 2, transactional_id_pattern="[")
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_the_partition_shows_the_open_transaction(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    def state() -> Any:
        asked = {"name": topic, "partition_indexes": [0]}
        (partition,) = wire.ask("describe_producers", 0, topics=[asked]).topics[0].partitions
        return partition.active_producers[0]

    write(wire, unique, producer, topic, 0, "value")
    assert (state().current_txn_start_offset, state().coordinator_epoch) == (0, -1)
    end(wire, unique, producer, commit=True)
    wait_for(lambda: state().current_txn_start_offset == -1)
    assert state().coordinator_epoch == 0
