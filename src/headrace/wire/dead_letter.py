"""The headers of a dead letter: where its record was and why it was given up. Built, read and taken off here only.

The first six are those of KIP-1191 (`__dlq.errors.*`), in its order and with its names, whoever writes the letter: the
broker, a worker or a Spark query. `headrace.dlq.*` say what a broker cannot know. A record that was sent back and is
given up again gets new ones in place of the old ones.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.wire.records import NewRecord

Header = tuple[str, bytes | None]
KAFKA_PREFIX = "__dlq.errors."
OUR_PREFIX = "headrace.dlq."
ATTEMPTS = "headrace.attempts"
"""The attempts that earlier copies of a record have had. A record that is sent back begins anew."""
MESSAGE_ID = "headrace.id"
"""Identifies a record that may have been sent more than once, for tasks that run once."""
KAFKA_NAMES = ("topic", "partition", "offset", "group", "delivery.count", "message")
BATCH_BYTES_MAX = 512 * 1024
"""Of letters that are written at a time."""
READ_BYTES = 1 << 20
"""Of records that are read at a time, to be copied."""
_NOT_COPIED = (OUR_PREFIX + "copied", b"false")


class LetterFacts(NamedTuple):
    """What the headers say; None for what they do not."""

    topic: str | None
    partition: int | None
    offset: int | None
    group_id: str | None
    delivery_count: int | None
    message: str
    cause: str | None
    """What sort of end it was, in a worker's or a query's word."""
    exception: str | None
    traceback_hash: str | None
    is_copied: bool
    """False: the letter says that it is without the record's value."""
    attempts: int | None = None
    """How often a worker ran the task: it may have tried several times in one delivery."""
    task: str | None = None
    worker: str | None = None
    exception_text: str | None = None
    traceback: str | None = None
    """The end of it, if it is long."""


def kafka_headers(
    topic: str, partition: int, offset: int, group_id: str, delivery_count: int, message: str
) -> list[Header]:
    values = (topic, partition, offset, group_id, delivery_count, message)
    return [
        (KAFKA_PREFIX + name, str(value).encode()) for name, value in zip(KAFKA_NAMES, values, strict=True)
    ]


def our_headers(facts: Mapping[str, object]) -> list[Header]:
    return [(OUR_PREFIX + name, str(value).encode()) for name, value in facts.items()]


def is_dead_letter_header(name: str) -> bool:
    return name.startswith((KAFKA_PREFIX, OUR_PREFIX))


def own_headers(headers: Iterable[Header]) -> list[Header]:
    """The record's own: without those of a letter."""
    return [header for header in headers if not is_dead_letter_header(header[0])]


def without_value(letter: NewRecord) -> NewRecord | None:
    """For a topic that does not take so much: without value and the record's own headers, then without the key.

    Its id stays: a relay may send it twice. None: there is nothing more to leave out.
    """
    if _NOT_COPIED not in letter.headers:
        kept = [each for each in letter.headers if is_dead_letter_header(each[0]) or each[0] == MESSAGE_ID]
        return letter._replace(value=None, headers=[*kept, _NOT_COPIED])
    return None if letter.key is None else letter._replace(key=None)


def header_texts(headers: Iterable[Header]) -> dict[str, str]:
    """By name; of several with one name the last."""
    return {name: (value or b"").decode(errors="replace") for name, value in headers}


def header_number(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def read_facts(headers: Iterable[Header]) -> LetterFacts | None:
    """None: the record is no dead letter."""
    texts = header_texts(headers)
    if not any(map(is_dead_letter_header, texts)):
        return None
    topic, partition, offset, group_id, delivery_count, message = (
        texts.get(KAFKA_PREFIX + name) for name in KAFKA_NAMES
    )
    return LetterFacts(
        topic=topic,
        partition=header_number(partition),
        offset=header_number(offset),
        group_id=group_id,
        delivery_count=header_number(delivery_count),
        message=message or "",
        cause=texts.get(OUR_PREFIX + "cause") or None,
        exception=texts.get(OUR_PREFIX + "exception", "").partition(":")[0] or None,
        traceback_hash=texts.get(OUR_PREFIX + "traceback.hash") or None,
        is_copied=texts.get(_NOT_COPIED[0]) != "false",
        attempts=header_number(texts.get(OUR_PREFIX + "attempts")),
        task=texts.get(OUR_PREFIX + "task") or None,
        worker=texts.get(OUR_PREFIX + "worker") or None,
        exception_text=texts.get(OUR_PREFIX + "exception") or None,
        traceback=texts.get(OUR_PREFIX + "traceback") or None,
    )
