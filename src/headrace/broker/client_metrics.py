"""Subscriptions to client metrics (KIP-714) as resources: kept, checked and shown as in Kafka.

Nothing comes of them: this broker has nowhere to send client metrics to, so like a Kafka broker without a receiver it
does not serve the telemetry APIs, and clients push nothing.
"""

import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from headrace.base.settings import ConfigType, SettingError
from headrace.broker.settings.setting import Scope, row
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

INTERVAL_MS_MIN, INTERVAL_MS_MAX = 100, 3_600_000
SELECTORS = frozenset(
    {
        "client_id",
        "client_instance_id",
        "client_software_name",
        "client_software_version",
        "client_source_address",
        "client_source_port",
    }
)
_KIND = "client-metrics"
_setting = partial(row, Scope.BROKER, is_dynamic=True)

SETTINGS = {
    setting.name: setting
    for setting in (
        _setting("interval.ms", ConfigType.INT, 300_000, "How often clients push their metrics."),
        _setting(
            "match", ConfigType.LIST, (), "Which clients push their metrics: ATTRIBUTE=PATTERN, one or more."
        ),
        _setting(
            "metrics", ConfigType.LIST, (), "Which metrics clients push: their names or prefixes of them."
        ),
    )
}


def names(core: "BrokerCore") -> list[str]:
    return sorted(core.metadata.configs(_KIND))


def overrides(core: "BrokerCore", name: str) -> dict[str, str]:
    return core.metadata.configs(_KIND).get(name, {})


def check(name: str, texts: Mapping[str, str]) -> None:
    """Raises KafkaError with Kafka's text where a subscription cannot be so."""
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
    for key, text in texts.items():
        setting = SETTINGS.get(key)
        if setting is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {key}")
        try:
            value = setting.parse(text)
        except SettingError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
        if isinstance(value, int) and not INTERVAL_MS_MIN <= value <= INTERVAL_MS_MAX:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Invalid value {text} for interval.ms, interval must be between 100 and 3600000 (1 hour)",
            )
        if key == "match" and isinstance(value, tuple):
            _check_patterns(value)


def _check_patterns(patterns: tuple[str, ...]) -> None:
    for pattern in patterns:
        selector, equals, expression = pattern.partition("=")
        try:
            is_good = bool(equals) and selector.strip() in SELECTORS and re.compile(expression) is not None
        except (re.error, RecursionError, OverflowError):
            is_good = False
        if not is_good:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {pattern}")


def replace(core: "BrokerCore", name: str, texts: Mapping[str, str]) -> None:
    """Durable when it returns."""
    core.metadata.set_configs(_KIND, name, texts)
