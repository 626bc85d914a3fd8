"""aiokafka's producer and consumer, set up by Kafka's names: for `produce`, and for `consume --consumer-group`.

Settings that every client has (addresses, security, times) go through our own table, which refuses what is wrong, and
are put into aiokafka's words by the worker's outbox, which sends with it too. Those that only a producer or only a
consumer has are listed here.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from headrace.cli.failures import Refused, say

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
PRODUCER_OPTIONS: dict[str, tuple[str, type]] = {
    "acks": ("acks", str),
    "linger.ms": ("linger_ms", int),
    "batch.size": ("max_batch_size", int),
    "max.request.size": ("max_request_size", int),
    "compression.type": ("compression_type", str),
    "enable.idempotence": ("enable_idempotence", bool),
}
CONSUMER_OPTIONS: dict[str, tuple[str, type]] = {
    "auto.offset.reset": ("auto_offset_reset", str),
    "isolation.level": ("isolation_level", str),
    "session.timeout.ms": ("session_timeout_ms", int),
    "heartbeat.interval.ms": ("heartbeat_interval_ms", int),
    "group.instance.id": ("group_instance_id", str),
    "max.poll.interval.ms": ("max_poll_interval_ms", int),
    "fetch.min.bytes": ("fetch_min_bytes", int),
    "fetch.max.bytes": ("fetch_max_bytes", int),
    "fetch.max.wait.ms": ("fetch_max_wait_ms", int),
    "max.partition.fetch.bytes": ("max_partition_fetch_bytes", int),
    "check.crcs": ("check_crcs", bool),
}
DELIVERY = "delivery.timeout.ms"
QUIET_S = 30.0
NOT_FOR_CONSUMERS = ("acks", "enable_idempotence", "max_request_size")


def for_admin(settings: Mapping[str, str]) -> dict[str, str]:
    """Without what only a producer or a plain consumer takes."""
    own = PRODUCER_OPTIONS.keys() | CONSUMER_OPTIONS.keys() | {"group.protocol", DELIVERY}
    return {name: value for name, value in settings.items() if name not in own}


def producer_options(settings: Mapping[str, str], compression: str | None) -> dict[str, Any]:
    own = _converted(settings, PRODUCER_OPTIONS)
    options = _common(settings) | own
    options["compression_type"] = compression or own.get("compression_type")
    if options["compression_type"] == "none":
        options["compression_type"] = None
    acks = {"-1": "all", "0": 0, "1": 1}.get(str(options["acks"]), options["acks"])
    if acks not in ("all", 0, 1):
        raise Refused(f"acks={acks}; allowed are all, 1 and 0")
    if acks != "all":
        if own.get("enable_idempotence"):
            raise Refused(f"enable.idempotence=true needs acks=all, not {acks}")
        options["enable_idempotence"] = False
    return options | {"acks": acks}


def patience_s(settings: Mapping[str, str], default: float) -> float:
    """How long to wait for an acknowledgement."""
    found = _converted(settings, {DELIVERY: (DELIVERY, int)}).get(DELIVERY)
    if found is not None and found < 1:
        raise Refused(f"{DELIVERY}={found}; allowed is 1 or more")
    return default if found is None else float(found) / 1000


class Hush(logging.Handler):
    """aiokafka tells of every try to reach a broker. One in half a minute is enough for a person."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said_at = float("-inf")

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if now - self._said_at >= QUIET_S:
            self._said_at = now
            say(f"headrace: trouble with a broker, trying on: {record.getMessage()}")


@contextmanager
def hushed() -> Iterator[None]:
    logger, handler = logging.getLogger("aiokafka"), Hush()
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


def consumer_options(settings: Mapping[str, str], group_id: str) -> dict[str, Any]:
    protocol = settings.get("group.protocol", "classic").lower()
    if protocol != "classic":
        raise Refused(
            f"group.protocol={protocol}: `headrace consume --consumer-group` speaks the classic protocol alone; "
            "leave it out. How partitions are shared out is the same."
        )
    common = {name: value for name, value in _common(settings).items() if name not in NOT_FOR_CONSUMERS}
    return (
        common | {"group_id": group_id, "enable_auto_commit": False} | _converted(settings, CONSUMER_OPTIONS)
    )


def _common(settings: Mapping[str, str]) -> dict[str, Any]:
    from headrace.client.settings import ClientSettings
    from headrace.worker.outbox import producer_options

    return producer_options(ClientSettings.parse(for_admin(settings)))


def _converted(settings: Mapping[str, str], table: Mapping[str, tuple[str, type]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, (option, kind) in table.items():
        if name not in settings:
            continue
        text = settings[name].strip()
        if kind is bool:
            if text.lower() not in ("true", "false"):
                raise Refused(f"{name}={text}; allowed are true and false")
            found[option] = text.lower() == "true"
        elif kind is int:
            if not text.lstrip("-").isdecimal():
                raise Refused(f"{name}={text} is not a whole number")
            found[option] = int(text)
        else:
            found[option] = text
    return found
