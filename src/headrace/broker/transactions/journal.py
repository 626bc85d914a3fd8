"""A transaction as a record of `__transaction_state`: Kafka's own key and value schemas, so that its tools
can read them.

A key is the transactional id, a value the whole transaction, no value a tombstone: the id has expired. Which
of the topic's partitions a record belongs to follows from the hash of its id (`partition_for`).
"""

import struct

from headrace.broker.transactions.machine import NO_EPOCH, TransactionMetadata
from headrace.broker.transactions.states import TransactionState
from headrace.wire.codec import MalformedMessage, read_message, write_message
from headrace.wire.messages.transaction_log_key import TransactionLogKey
from headrace.wire.messages.transaction_log_value import PartitionsSchema, TransactionLogValue

TOPIC = "__transaction_state"
VALUE_VERSION = 1
_SHORT = struct.Struct(">h")


class UnknownRecord(Exception):
    """A record of a kind or version that this release does not know. As in Kafka it is skipped with a warning."""


def encode_key(transactional_id: str) -> bytes:
    out = bytearray(_SHORT.pack(TransactionLogKey.API_KEY))
    write_message(TransactionLogKey(transactional_id=transactional_id), 0, out)
    return bytes(out)


def encode_value(transaction: TransactionMetadata) -> bytes:
    assert transaction.state is not TransactionState.DEAD, "an expired id is journalled as a tombstone"
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(transaction.partitions):
        topics.setdefault(topic, []).append(index)
    partitions = [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()]
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if transaction.state is TransactionState.EMPTY else partitions,
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
    )
    out = bytearray(_SHORT.pack(VALUE_VERSION))
    write_message(value, VALUE_VERSION, out)
    return bytes(out)


def parse_key(key: bytes | None) -> str:
    if key is None or len(key) < 2:
        raise UnknownRecord("a record without a key")
    (kind,) = _SHORT.unpack_from(key)
    if kind != TransactionLogKey.API_KEY:
        raise UnknownRecord(f"a key of kind {kind}")
    message, _ = read_message(TransactionLogKey, 0, key, 2)
    return message.transactional_id


def parse_value(transactional_id: str, value: bytes) -> TransactionMetadata:
    if len(value) < 2:
        raise UnknownRecord(f"{transactional_id}: a value of {len(value)} bytes")
    (version,) = _SHORT.unpack_from(value)
    low, high = TransactionLogValue.VERSIONS
    if not low <= version <= high:
        raise UnknownRecord(f"{transactional_id}: a value of version {version}")
    message, _ = read_message(TransactionLogValue, version, value, 2)
    try:
        state = TransactionState(message.transaction_status)
    except ValueError:
        raise UnknownRecord(f"{transactional_id}: state {message.transaction_status}") from None
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=message.producer_id,
        producer_epoch=message.producer_epoch,
        timeout_ms=message.transaction_timeout_ms,
        state=state,
        update_ms=message.transaction_last_update_timestamp_ms,
        start_ms=message.transaction_start_timestamp_ms,
        partitions=frozenset(
            (topic.topic, index)
            for topic in message.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        client_version=message.client_transaction_version,
        previous_producer_id=message.previous_producer_id,
        next_producer_id=message.next_producer_id,
        last_producer_epoch=NO_EPOCH,
    )


def replay(transactions: dict[str, TransactionMetadata], key: bytes | None, value: bytes | None) -> None:
    """Applies one record to what was read before it. Raises UnknownRecord for what is to be skipped."""
    try:
        transactional_id = parse_key(key)
        if value is None:
            transactions.pop(transactional_id, None)
        else:
            transactions[transactional_id] = parse_value(transactional_id, value)
    except MalformedMessage as error:
        raise UnknownRecord(str(error)) from error
