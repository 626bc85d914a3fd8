"""Records of `__transaction_state`: Kafka's bytes, and every transaction reads back as it was written."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.transactions import journal
from headrace.broker.transactions.journal import UnknownRecord
from headrace.broker.transactions.machine import TransactionMetadata
from headrace.broker.transactions.states import TransactionState

EXAMPLE = TransactionMetadata(
    transactional_id="t",
    producer_id=7,
    producer_epoch=5,
    timeout_ms=1000,
    state=TransactionState.ONGOING,
    update_ms=200,
    start_ms=100,
    partitions=frozenset({("b", 1), ("a", 2), ("a", 0)}),
    client_version=2,
    previous_producer_id=7,
)

transactions = st.builds(
    TransactionMetadata,
    transactional_id=st.text(max_size=20).filter(lambda text: text.isprintable()),
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 32767),
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from(
        [state for state in TransactionState if state not in (TransactionState.DEAD, TransactionState.EMPTY)]
    ),
    update_ms=st.integers(0, 2**62),
    start_ms=st.integers(-1, 2**62),
    partitions=st.frozensets(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 9)), max_size=8),
    client_version=st.integers(0, 2),
    previous_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_id=st.integers(-1, 2**63 - 1),
)


def test_a_key_is_kind_zero_and_the_id() -> None:
    assert journal.encode_key("t") == bytes.fromhex("0000 0001 74")


def test_a_value_has_kafkas_bytes() -> None:
    expected = (
        "0001"  # version 1
        "0000000000000007 0005"  # producer id, epoch
        "000003e8 01"  # timeout, Ongoing
        "03"  # two topics
        "02 61 03 00000000 00000002 00"  # a: 0, 2
        "02 62 02 00000001 00"  # b: 1
        "00000000000000c8 0000000000000064"  # last update, start
        "02 00 08 0000000000000007 02 02 0002"  # tags: previous producer id, client version
    )
    assert journal.encode_value(EXAMPLE).hex() == expected.replace(" ", "")


def test_an_empty_transaction_has_no_list_of_partitions_at_all() -> None:
    empty = replace(EXAMPLE, state=TransactionState.EMPTY, partitions=frozenset(), start_ms=-1)
    value = journal.encode_value(empty)
    assert value[17:18] == b"\0"
    assert journal.parse_value("t", value) == empty


@given(transactions)
def test_what_is_written_reads_back(transaction: TransactionMetadata) -> None:
    key = journal.parse_key(journal.encode_key(transaction.transactional_id))
    assert key == transaction.transactional_id
    assert journal.parse_value(key, journal.encode_value(transaction)) == transaction


def test_the_last_record_of_an_id_counts_and_a_tombstone_ends_it() -> None:
    found: dict[str, TransactionMetadata] = {}
    key = journal.encode_key("t")
    later = replace(EXAMPLE, producer_epoch=6)
    journal.replay(found, key, journal.encode_value(EXAMPLE))
    journal.replay(found, key, journal.encode_value(later))
    assert found == {"t": later}
    journal.replay(found, key, None)
    assert found == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"\0", None),
        (b"\0\1\0\0", None),
        (b"\0\0\0\x09", None),
        (journal.encode_key("t"), b"\0"),
        (journal.encode_key("t"), b"\0\2" + bytes(40)),
        (journal.encode_key("t"), journal.encode_value(EXAMPLE)[:20]),
        (journal.encode_key("t"), journal.encode_value(EXAMPLE).replace(b"\x03\xe8\x01", b"\x03\xe8\x63")),
    ],
    ids=["no key", "half a key", "kind 1", "cut key", "half a value", "version 2", "cut value", "state 99"],
)
def test_what_this_release_does_not_know_is_told_and_changes_nothing(
    key: bytes | None, value: bytes | None
) -> None:
    found = {"other": EXAMPLE}
    with pytest.raises(UnknownRecord):
        journal.replay(found, key, value)
    assert found == {"other": EXAMPLE}
