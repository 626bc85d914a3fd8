"""The values in force: what a setting is now, and where that value comes from.

Theory of operation. A broker setting has up to four layers, the first that has it wins: altered for this
node, altered for the whole cluster (both at run time, kept in the metadata store), given at start, the
table's default. A topic or group setting is its own override, else the first of its broker synonyms that is
set, else the table's default. Reading is one dictionary look-up: every change recomputes `_values`.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

from headrace.base.settings import SettingError, Value
from headrace.broker.settings.foreign import FOREIGN, REFUSED
from headrace.broker.settings.properties import from_keywords
from headrace.broker.settings.providers import resolve_references
from headrace.broker.settings.security_table import LISTENER_PREFIX
from headrace.broker.settings.setting import Scope, ScopedSetting
from headrace.broker.settings.table import BY_NAME, broker_setting, remark_on_unknown
from headrace.broker.settings.together import contradictions
from headrace.log.config import LogConfig
from headrace.wire.enums import ConfigSource

logger = logging.getLogger("headrace.settings")

CLUSTER_WIDE = ""
"""The name of the broker resource that stands for every broker."""


_GROUP_SETTINGS = BY_NAME[Scope.GROUP]
PINNED = "min.insync.replicas"
"""Kafka 4.3 notes this one cluster-wide when a cluster is made, and from then on shows it as altered (KIP-966)."""


class ConfigStore(Protocol):
    """Where altered settings are kept: the metadata store."""

    def configs(self, kind: str) -> dict[str, dict[str, str]]: ...

    def set_configs(self, kind: str, name: str, configs: Mapping[str, str]) -> None: ...


class SettingOrigin(NamedTuple):
    """One layer's value of a setting."""

    name: str
    value: Value | None
    source: ConfigSource


class InvalidSettings(ValueError):
    """Settings that the broker refuses to start with, one line each: name, value, what is allowed."""


class Settings:
    def __init__(self, values: Mapping[str, object] | None = None) -> None:
        """Takes Kafka's names, or keywords with underscores; warns of unknown ones; raises InvalidSettings."""
        try:
            given = resolve_references(from_keywords(values or {}))
        except ValueError as error:
            raise InvalidSettings(str(error)) from None
        for name in REFUSED:
            if given.get(name):
                raise InvalidSettings(f"{name}={given[name]}: {FOREIGN[name]}; remove the setting")
        self.warnings = [
            remark_on_unknown(name) for name in given if name in FOREIGN or broker_setting(name) is None
        ]
        for warning in self.warnings:
            logger.warning("%s", warning)
        self._static = _parse_all(given)
        self._cluster: dict[str, Value] = {}
        self._node: dict[str, Value] = {}
        self._groups: dict[str, dict[str, Value]] = {}
        self._store: ConfigStore | None = None
        self._values: dict[str, Value | None] = {}
        self._log_configs: dict[tuple[tuple[str, str], ...], LogConfig] = {}
        self.revision = 0
        """Changes whenever any value may have: hot paths keep what they read until it does."""
        self.on_changed: list[Callable[[], None]] = []
        """Called after broker settings were altered on the running broker."""
        self.checks: list[Callable[[], None]] = []
        """Asked before broker settings are altered, with the new values in force; they raise InvalidSettings."""
        self.on_group_changed: list[Callable[[str], None]] = []
        """Called with a group's id after its settings were altered."""
        self._recompute()
        refusals = contradictions(self)
        if refusals:
            raise InvalidSettings("\n".join(refusals))

    def attach(self, store: ConfigStore) -> None:
        """Takes over what was altered in earlier runs, and keeps further alterations there."""
        self._store = store
        brokers = store.configs("broker")
        self._cluster = _still_valid(brokers.get(CLUSTER_WIDE, {}))
        self._node = _still_valid(brokers.get(str(self.get_int("node.id")), {}))
        self._groups = {
            group: _still_valid(texts, Scope.GROUP) for group, texts in store.configs("group").items()
        }
        self._recompute()
        if PINNED not in self._cluster:
            self.set_dynamic(PINNED, str(self.get_int(PINNED)), is_cluster_wide=True)

    def value(self, name: str) -> Value | None:
        """A broker setting's value in force; None where it is unset and has no default."""
        return self._values[name]

    def get_int(self, name: str) -> int:
        value = self._values[name]
        assert type(value) is int, f"{name} is {value!r}, not a number"
        return value

    def get_float(self, name: str) -> float:
        value = self._values[name]
        assert isinstance(value, (float, int)), f"{name} is {value!r}, not a number"
        return value

    def get_bool(self, name: str) -> bool:
        value = self._values[name]
        assert isinstance(value, bool), f"{name} is {value!r}, not a boolean"
        return value

    def get_str(self, name: str) -> str:
        value = self._values[name]
        assert isinstance(value, str), f"{name} is {value!r}, not a text"
        return value

    def get_list(self, name: str) -> list[str]:
        value = self._values[name]
        assert isinstance(value, tuple), f"{name} is {value!r}, not a list"
        return [*value]

    def listener_value(self, listener: str, name: str, mechanism: str | None = None) -> Value | None:
        """A setting as one listener has it, and one of its mechanisms: their own value, else the broker's."""
        prefix = f"{LISTENER_PREFIX}{listener.lower()}."
        names = [f"{prefix}{name}", name]
        if mechanism is not None:
            names.insert(0, f"{prefix}{mechanism.lower()}.{name}")
        return next((self._values[each] for each in names if each in self._values), None)

    def topic_value(self, name: str, overrides: Mapping[str, str]) -> Value | None:
        setting = BY_NAME[Scope.TOPIC][name]
        return setting.parse(overrides[name]) if name in overrides else self.broker_default(setting)

    def group_value(self, group_id: str, name: str) -> Value | None:
        """A group's own value, held within what the broker allows now; else the broker's for all groups."""
        setting = _GROUP_SETTINGS[name]
        own = self._groups.get(group_id, {}).get(name)
        if own is None:
            return self.broker_default(setting)
        if setting.bounds is None or type(own) is not int:
            return own
        lowest, highest = (self.get_int(bound) for bound in setting.bounds)
        return min(max(own, lowest), highest)

    def group_int(self, group_id: str, name: str) -> int:
        """`consumer.session.timeout.ms` and its like."""
        value = self.group_value(group_id, name)
        assert type(value) is int, f"{name} is {value!r}, not a number"
        return value

    def group_bool(self, group_id: str, name: str) -> bool:
        value = self.group_value(group_id, name)
        assert isinstance(value, bool), f"{name} is {value!r}, not a boolean"
        return value

    def group_str(self, group_id: str, name: str) -> str:
        value = self.group_value(group_id, name)
        assert isinstance(value, str), f"{name} is {value!r}, not a text"
        return value

    def broker_default(self, setting: ScopedSetting) -> Value | None:
        """What a topic or group setting is without an override."""
        for synonym in setting.synonyms:
            value = self._values[synonym.name]
            if value is not None:
                return value * synonym.factor if type(value) is int else value
        return setting.default

    def log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        """How the log layer keeps a topic with these overrides (checked before) and the broker's defaults."""
        key = tuple(sorted(overrides.items()))
        found = self._log_configs.get(key)
        if found is None:
            found = self._log_configs[key] = self._make_log_config(overrides)
        return found

    def _make_log_config(self, overrides: Mapping[str, str]) -> LogConfig:
        def number(name: str) -> int:
            value = self.topic_value(name, overrides)
            assert type(value) is int
            return value

        policy = self.topic_value("cleanup.policy", overrides)
        ratio = self.topic_value("min.cleanable.dirty.ratio", overrides)
        assert isinstance(policy, tuple)
        assert isinstance(ratio, (float, int))
        small_segment = overrides.get("internal.segment.bytes")
        return LogConfig(
            segment_bytes=int(small_segment) if small_segment else number("segment.bytes"),
            segment_ms=number("segment.ms"),
            retention_ms=number("retention.ms"),
            retention_bytes=number("retention.bytes"),
            max_message_bytes=number("max.message.bytes"),
            message_timestamp_type=str(self.topic_value("message.timestamp.type", overrides)),
            message_timestamp_before_max_ms=number("message.timestamp.before.max.ms"),
            message_timestamp_after_max_ms=number("message.timestamp.after.max.ms"),
            cleanup_policy=frozenset(policy),
            delete_retention_ms=number("delete.retention.ms"),
            min_compaction_lag_ms=number("min.compaction.lag.ms"),
            max_compaction_lag_ms=number("max.compaction.lag.ms"),
            min_cleanable_dirty_ratio=ratio,
            file_delete_delay_ms=number("file.delete.delay.ms"),
            index_interval_bytes=number("index.interval.bytes"),
            segment_index_bytes=number("segment.index.bytes"),
            compression_type=str(self.topic_value("compression.type", overrides)),
            producer_expiration_ms=self.get_int("producer.id.expiration.ms"),
        )

    def origins(self, *names: str) -> Iterator[SettingOrigin]:
        """The layers that have one of these broker settings, the strongest first."""
        for layer, source in (
            (self._node, ConfigSource.DYNAMIC_BROKER),
            (self._cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER),
            (self._static, ConfigSource.STATIC_BROKER),
        ):
            for name in names:
                if name in layer:
                    yield SettingOrigin(name, layer[name], source)
        for name in names:
            setting = BY_NAME[Scope.BROKER].get(name)
            if setting is not None and setting.default is not None:
                yield SettingOrigin(name, setting.default, ConfigSource.DEFAULT)

    def is_given(self, name: str) -> bool:
        """Whether somebody has set a broker setting, at start or later."""
        return name in self._static or name in self._cluster or name in self._node

    def given(self) -> set[str]:
        """The broker settings that somebody has set, at start or later."""
        return {*self._static, *self._cluster, *self._node}

    def dynamic(self, *, is_cluster_wide: bool) -> Mapping[str, Value]:
        """What was altered on the running broker, for this node or for all."""
        return self._cluster if is_cluster_wide else self._node

    def set_dynamic(self, name: str, text: str | None, *, is_cluster_wide: bool = False) -> None:
        """Alters one broker setting while the broker runs; None takes the alteration back."""
        texts = {
            key: _text(key, value) for key, value in self.dynamic(is_cluster_wide=is_cluster_wide).items()
        }
        if text is None:
            texts.pop(name, None)
        else:
            texts[name] = text
        self.replace_dynamic(texts, is_cluster_wide=is_cluster_wide)

    def replace_dynamic(self, texts: Mapping[str, str], *, is_cluster_wide: bool = False) -> None:
        """All alterations at once, for this node or for all: durable when it returns. Raises SettingError."""
        values = {name: _broker_setting(name).parse(text) for name, text in texts.items()}
        if self._store is not None:
            resource = CLUSTER_WIDE if is_cluster_wide else str(self.get_int("node.id"))
            self._store.set_configs(
                "broker", resource, {name: _text(name, value) for name, value in values.items()}
            )
        if is_cluster_wide:
            self._cluster = values
        else:
            self._node = values
        self._recompute()
        for listener in self.on_changed:
            listener()

    def check_dynamic(self, texts: Mapping[str, str], *, is_cluster_wide: bool = False) -> None:
        """Raises InvalidSettings where what `replace_dynamic` would put in force cannot work. Changes nothing."""
        before = self._cluster, self._node
        values = {name: _broker_setting(name).parse(text) for name, text in texts.items()}
        if is_cluster_wide:
            self._cluster = values
        else:
            self._node = values
        self._recompute()
        try:
            for check in self.checks:
                check()
        finally:
            self._cluster, self._node = before
            self._recompute()

    def group_overrides(self, group_id: str) -> Mapping[str, Value]:
        return self._groups.get(group_id, {})

    def groups_with_overrides(self) -> list[str]:
        return sorted(self._groups)

    def replace_group(self, group_id: str, texts: Mapping[str, str]) -> None:
        """All settings of one group at once: durable when it returns. Raises SettingError."""
        table = BY_NAME[Scope.GROUP]
        values = {name: table[name].parse(text) for name, text in texts.items()}
        if self._store is not None:
            self._store.set_configs("group", group_id, dict(texts))
        if values:
            self._groups[group_id] = values
        else:
            self._groups.pop(group_id, None)
        self.revision += 1
        for listener in self.on_group_changed:
            listener(group_id)

    def _recompute(self) -> None:
        self.revision += 1
        values: dict[str, Value | None] = {}
        for name in {**BY_NAME[Scope.BROKER], **self._static, **self._cluster, **self._node}:
            origin = next(self.origins(name), None)
            values[name] = origin.value if origin is not None else None
        self._values = values
        self._log_configs.clear()


def _broker_setting(name: str) -> ScopedSetting:
    setting = broker_setting(name)
    if setting is None:
        raise KeyError(remark_on_unknown(name))
    return setting


def _text(name: str, value: Value) -> str:
    text = _broker_setting(name).render(value)
    assert text is not None
    return text


def _parse_all(given: Mapping[str, str]) -> dict[str, Value]:
    values: dict[str, Value] = {}
    refusals = []
    for name, text in given.items():
        setting = broker_setting(name)
        if setting is None:
            continue
        try:
            values[name] = setting.parse(text)
        except SettingError as error:
            refusals.append(error.explain())
    if refusals:
        raise InvalidSettings("\n".join(refusals))
    return values


def _still_valid(texts: Mapping[str, str], scope: Scope = Scope.BROKER) -> dict[str, Value]:
    """What an earlier run (perhaps another version) kept and no longer fits is left out, with a warning."""
    values: dict[str, Value] = {}
    for name, text in texts.items():
        setting = broker_setting(name) if scope is Scope.BROKER else BY_NAME[scope].get(name)
        try:
            if setting is None:
                logger.warning("%s setting %s, altered in an earlier run, is unknown", scope.value, name)
            else:
                values[name] = setting.parse(text)
        except SettingError as error:
            logger.warning("altered in an earlier run, now ignored: %s", error.explain())
    return values
