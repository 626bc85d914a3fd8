"""A kombu message as a record, and the names that queues and exchanges have on Kafka.

The value of a record is the body as kombu serialized it. Everything else (content type, headers, properties) is JSON in
one record header. A record without this header, which another program has written, becomes a message without headers:
Celery rejects such messages as unknown.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from kombu.utils.json import dumps, loads

HEADER = "kombu.message"
TOPIC_CHARACTERS_MAX = 249
HASH_CHARACTERS = 12
DIGITS_MAX = 15
DEFAULT_EXCHANGE = "default"
"""Stands for the exchange without a name."""
_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")
_FOREIGN = {"content-type": "application/octet-stream", "content-encoding": "binary"}

RecordHeader = tuple[str, bytes | None]


def to_record(message: Mapping[str, Any]) -> tuple[bytes, tuple[RecordHeader, ...]]:
    """The value and the headers of a record."""
    body = message.get("body")
    value = body.encode() if isinstance(body, str) else bytes(body or b"")
    rest = {name: each for name, each in message.items() if name != "body"}
    return value, ((HEADER, dumps(rest).encode()),)


def to_message(value: bytes | None, headers: Iterable[RecordHeader]) -> dict[str, Any]:
    """The message of a record, with an empty body for a record without a value."""
    found: Any = None
    for name, text in headers:
        if name == HEADER and text is not None:
            try:
                found = loads(text)
            except Exception:  # whatever it is: the header is not ours, and decoders may raise anything
                found = None
    message = dict(found) if isinstance(found, Mapping) else dict(_FOREIGN)
    properties = message.get("properties")
    message["properties"] = properties = dict(properties) if isinstance(properties, Mapping) else {}
    given = properties.get("delivery_info")
    properties["delivery_info"] = dict(given) if isinstance(given, Mapping) else {}
    if not isinstance(message.get("headers"), Mapping):
        message["headers"] = {}
    message["body"] = value or b""
    return message


def routing_key_of(message: Mapping[str, Any]) -> str:
    return str(message["properties"]["delivery_info"].get("routing_key") or "")


def eta_of(message: Mapping[str, Any]) -> datetime | None:
    """When a Celery task is to run; None for a time without a zone, which only Celery can read."""
    eta = (message.get("headers") or {}).get("eta")
    try:
        moment = datetime.fromisoformat(eta) if isinstance(eta, str) else None
    except ValueError:
        return None
    return moment if moment is not None and moment.tzinfo is not None else None


def expires_at_ms(message: Mapping[str, Any], sent_ms: int) -> int | None:
    """When a message with AMQP's property `expiration` (milliseconds) is of no use any more."""
    text = str(message["properties"].get("expiration") or "")
    return sent_ms + int(text) if text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX else None


def topic_of(name: str) -> str:
    """The topic for a name. One that Kafka does not take is written with `-`, and with a hash that tells it apart."""
    if name and name not in (".", "..") and len(name) <= TOPIC_CHARACTERS_MAX and not _ILLEGAL.search(name):
        return name
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:HASH_CHARACTERS]
    kept = _ILLEGAL.sub("-", name)[: TOPIC_CHARACTERS_MAX - HASH_CHARACTERS - 1]
    return f"{kept}-{digest}"


def broadcast_prefix(group_id: str) -> str:
    return f"{group_id}.broadcast."


def broadcast_topic(group_id: str, exchange: str) -> str:
    """What an exchange sends to temporary queues goes through this topic."""
    return topic_of(broadcast_prefix(group_id) + (exchange or DEFAULT_EXCHANGE))
