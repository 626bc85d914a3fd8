"""Headers of dead letters are built, read and taken off by the same module, so they must agree."""

from headrace.wire.dead_letter import (
    KAFKA_NAMES,
    LetterFacts,
    kafka_headers,
    our_headers,
    own_headers,
    read_facts,
    without_value,
)
from headrace.wire.records import NewRecord

OWN = [("trace", b"1"), ("trace", None)]
HEADERS = [
    *kafka_headers("orders", 2, 41, "mailers", 3, "no mailbox"),
    *our_headers({"cause": "exhausted", "exception": "ValueError: no mailbox", "traceback.hash": "ab12"}),
]
LETTER = NewRecord(b"k", b"v", [*OWN, *HEADERS], 5)


def test_the_first_six_are_those_of_kip_1191_in_its_order() -> None:
    assert [name for name, _ in HEADERS[:6]] == [
        "__dlq.errors.topic",
        "__dlq.errors.partition",
        "__dlq.errors.offset",
        "__dlq.errors.group",
        "__dlq.errors.delivery.count",
        "__dlq.errors.message",
    ]
    assert len(KAFKA_NAMES) == 6


def test_what_was_built_is_read_again() -> None:
    assert read_facts(LETTER.headers) == LetterFacts(
        "orders",
        2,
        41,
        "mailers",
        3,
        "no mailbox",
        "exhausted",
        "ValueError",
        "ab12",
        True,
        exception_text="ValueError: no mailbox",
    )


def test_what_the_headers_do_not_say_is_none() -> None:
    facts = read_facts([("__dlq.errors.partition", b"two"), ("__dlq.errors.message", None)])
    assert facts == LetterFacts(None, None, None, None, None, "", None, None, None, True)


def test_a_record_without_such_headers_is_no_letter() -> None:
    assert read_facts(OWN) is None


def test_the_records_own_headers_are_kept_in_order() -> None:
    assert own_headers(LETTER.headers) == OWN


def test_a_letter_that_is_too_large_goes_without_value_then_without_key() -> None:
    first = without_value(LETTER)
    assert first is not None
    assert (first.key, first.value, first.timestamp) == (b"k", None, 5)
    assert first.headers == [*HEADERS, ("headrace.dlq.copied", b"false")]
    facts = read_facts(first.headers)
    assert facts is not None
    assert not facts.is_copied
    second = without_value(first)
    assert second == first._replace(key=None)
    assert without_value(second) is None


def test_a_letter_without_value_keeps_its_id() -> None:
    """A relay may send it twice: its id says so to whoever reads it."""
    small = without_value(LETTER._replace(headers=[("headrace.id", b"7"), *LETTER.headers]))
    assert small is not None
    assert small.headers == [("headrace.id", b"7"), *HEADERS, ("headrace.dlq.copied", b"false")]
