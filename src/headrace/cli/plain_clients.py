"""aiokafka's consumer, set up by Kafka's names: for `consume --consumer-group`.

Settings that every client has (addresses, security, times) go through our own table, which refuses what is wrong.
Those that only a consumer has are listed here.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from headrace.cli.failures import Refused, say

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
QUIET_S = 30.0


def for_admin(settings: Mapping[str, str]) -> dict[str, str]:
    """Without what only a plain consumer takes."""
    own = CONSUMER_OPTIONS.keys() | {"group.protocol"}
    return {name: value for name, value in settings.items() if name not in own}


class Hush(logging.Handler):
    """aiokafka tells of every try to reach a broker. One in half a minute is enough for a person."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said_at = float("-inf")

    def emit(self, record: logging.LogRecord) -> None:
        now = time.monotonic()
        if now - self._said_at >= QUIET_S:
            self._said_at = now
            say(f"headrace: a broker does not respond, still trying: {record.getMessage()}")


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
            f"group.protocol={protocol}: `headrace consume --consumer-group` supports only the classic protocol; "
            "omit the setting. The assignment of partitions is the same."
        )
    return (
        _common(settings)
        | {"group_id": group_id, "enable_auto_commit": False}
        | _converted(settings, CONSUMER_OPTIONS)
    )


def _common(given: Mapping[str, str]) -> dict[str, Any]:
    """Our client's settings in aiokafka's words."""
    from headrace.client.security import tls_context
    from headrace.client.settings import ClientSettings

    settings = ClientSettings.parse(for_admin(given))
    options: dict[str, Any] = {
        "bootstrap_servers": [str(address) for address in settings.bootstrap_servers],
        "client_id": settings.client_id,
        "request_timeout_ms": settings.request_timeout_ms,
        "metadata_max_age_ms": settings.metadata_max_age_ms,
        "retry_backoff_ms": settings.retry_backoff_ms,
        "security_protocol": settings.security_protocol.value,
    }
    if settings.security_protocol.has_tls:
        options["ssl_context"] = tls_context(settings)
    if settings.security_protocol.has_sasl:
        options |= {
            "sasl_mechanism": settings.sasl_mechanism.value,
            "sasl_plain_username": settings.sasl_username,
            "sasl_plain_password": settings.sasl_password,
        }
    return options


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
