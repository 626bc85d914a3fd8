"""Settings as resources: what DescribeConfigs shows of a topic, a broker or a group, and how they are altered.

Theory of operation. A resource's settings are a table (settings/) over a chain of layers. `describe` renders
each with its source and the values it hides (its synonyms). Altering goes in two steps, so that "validate
only" and one bad setting among many change nothing: `altered` applies the operations to the overrides as
text, `alter` checks the result as a whole and puts it in force.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import dropwhile
from typing import TYPE_CHECKING

from headrace.base.settings import ConfigType, bounded_int
from headrace.broker import client_metrics, loggers
from headrace.broker.settings import (
    BY_NAME,
    InvalidSettings,
    Scope,
    ScopedSetting,
    SettingError,
    SettingOrigin,
    Settings,
)
from headrace.broker.settings.foreign import FOREIGN
from headrace.broker.settings.security_table import ONLY_BY_LISTENER, is_of_one_broker
from headrace.broker.settings.table import broker_setting, remark_on_unknown
from headrace.broker.settings.values import CLUSTER_WIDE, PINNED
from headrace.broker.topics import check_name
from headrace.wire.enums import AlterOperation, ConfigResourceType, ConfigSource
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

logger = logging.getLogger("headrace.settings")

VALUE_BYTES_MAX = 32767


_SCOPES = {
    ConfigResourceType.TOPIC: Scope.TOPIC,
    ConfigResourceType.BROKER: Scope.BROKER,
    ConfigResourceType.GROUP: Scope.GROUP,
}
# Broker settings that stand for one another (hours, minutes and milliseconds), the strongest first.
_FAMILIES = {
    synonym.name: tuple(other.name for other in setting.synonyms)
    for setting in BY_NAME[Scope.TOPIC].values()
    for synonym in setting.synonyms
}


@dataclass(frozen=True, slots=True)
class ConfigSynonym:
    """One layer's value, as text."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class DescribedConfig:
    """A setting as DescribeConfigs and CreateTopics answer it."""

    name: str
    value: str | None
    source: ConfigSource
    type: int = 0
    is_read_only: bool = False
    is_sensitive: bool = False
    doc: str | None = None
    synonyms: tuple[ConfigSynonym, ...] = ()


def describe(core: "BrokerCore", kind: int, name: str) -> list[DescribedConfig]:
    """Everything a resource has, in the order of names; KafkaError when there is no such resource."""
    match kind:
        case ConfigResourceType.TOPIC:
            check_name(name)
            topic = core.topics.get(name)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return describe_topic(core.settings, topic.configs)
        case ConfigResourceType.BROKER:
            if name:
                _require_this_node(core, name, "Broker", " or empty string,")
            return _describe_broker(core.settings, is_cluster_wide=not name)
        case ConfigResourceType.BROKER_LOGGER:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
            _require_this_node(core, name, "Broker", "")
            return [
                DescribedConfig(logger, level, ConfigSource.DYNAMIC_BROKER_LOGGER)
                for logger, level in loggers.levels().items()
            ]
        case ConfigResourceType.CLIENT_METRICS:
            if not name:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty"
                )
            return _describe_client_metrics(core, name)
        case ConfigResourceType.GROUP:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            return _describe_group(core.settings, name)
        case _:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Unexpected resource type UNKNOWN for resource {name}"
            )


def describe_topic(settings: Settings, overrides: Mapping[str, str]) -> list[DescribedConfig]:
    entries = []
    for setting in _visible(Scope.TOPIC, overrides):
        value = settings.topic_value(setting.name, overrides)
        layers = _broker_layers(settings, setting)
        if setting.name in overrides:
            layers.insert(0, SettingOrigin(setting.name, value, ConfigSource.DYNAMIC_TOPIC))
        entries.append(_entry(setting, setting.render(value), layers))
    return entries


def creation_entries(settings: Settings, overrides: Mapping[str, str]) -> list[DescribedConfig]:
    """A new topic's settings as CreateTopics answers them: the layer in force, without what it hides.

    Unlike DescribeConfigs, Kafka follows all synonyms here: `log.retention.hours` given at start is a static source.
    """
    entries = []
    for setting in _visible(Scope.TOPIC, overrides):
        if setting.name in overrides:
            entries.append(DescribedConfig(setting.name, overrides[setting.name], ConfigSource.DYNAMIC_TOPIC))
            continue
        names = [synonym.name for synonym in setting.synonyms]
        source = next(
            (layer.source for name in names for layer in settings.origins(name)), ConfigSource.DEFAULT
        )
        entries.append(
            DescribedConfig(setting.name, setting.render(settings.broker_default(setting)), source)
        )
    return entries


def _describe_broker(settings: Settings, *, is_cluster_wide: bool) -> list[DescribedConfig]:
    if is_cluster_wide:
        altered = settings.dynamic(is_cluster_wide=True)
        visible = [_broker_setting(name) for name in sorted(altered)]
    else:
        given = settings.given()
        visible = _visible(Scope.BROKER, given)
        visible += [_broker_setting(name) for name in sorted(given - BY_NAME[Scope.BROKER].keys())]
    entries = []
    for setting in visible:
        layers = _layers(settings, setting.name)
        value = settings.value(setting.name)
        if is_cluster_wide:
            layers = [layer for layer in layers if layer.source is ConfigSource.DYNAMIC_DEFAULT_BROKER]
            value = altered[setting.name]
        entries.append(_entry(setting, setting.render(value), layers))
    return entries


def _broker_setting(name: str) -> ScopedSetting:
    setting = broker_setting(name)
    assert setting is not None
    return setting


def _describe_group(settings: Settings, group_id: str) -> list[DescribedConfig]:
    overrides = settings.group_overrides(group_id)
    entries = []
    for setting in _visible(Scope.GROUP, overrides):
        value = overrides.get(setting.name, settings.broker_default(setting))
        layers = _broker_layers(settings, setting)
        if setting.name in overrides:
            layers.insert(0, SettingOrigin(setting.name, value, ConfigSource.GROUP))
        entries.append(_entry(setting, setting.render(value), layers))
    return entries


def _describe_client_metrics(core: "BrokerCore", name: str) -> list[DescribedConfig]:
    overrides = client_metrics.overrides(core, name)
    entries = []
    for setting in client_metrics.SETTINGS.values():
        value, layers = setting.default, []
        if setting.name in overrides:
            value = setting.parse(overrides[setting.name])
            layers = [SettingOrigin(setting.name, value, ConfigSource.CLIENT_METRICS)]
        entries.append(_entry(setting, setting.render(value), layers))
    return entries


def _visible(scope: Scope, given: Iterable[str]) -> list[ScopedSetting]:
    """What is shown: internal settings only where somebody has set them."""
    shown = set(given)
    table = BY_NAME[scope]
    return [table[name] for name in sorted(table) if name in shown or not table[name].is_internal]


def _broker_layers(settings: Settings, setting: ScopedSetting) -> list[SettingOrigin]:
    if setting.synonyms:
        return _layers(settings, setting.synonyms[0].name)
    return (
        []
        if setting.default is None or setting.scope is Scope.TOPIC
        else [SettingOrigin(setting.name, setting.default, ConfigSource.DEFAULT)]
    )


def _layers(settings: Settings, name: str) -> list[SettingOrigin]:
    """As Kafka lists them: of a family, only from the first layer on that has the asked name itself."""
    found = settings.origins(*_FAMILIES.get(name, (name,)))
    return list(dropwhile(lambda layer: layer.name != name, found))


def _entry(setting: ScopedSetting, value: str | None, layers: list[SettingOrigin]) -> DescribedConfig:
    is_sensitive = setting.is_sensitive
    return DescribedConfig(
        name=setting.name,
        value=None if is_sensitive else value,
        source=layers[0].source if layers else ConfigSource.DEFAULT,
        type=setting.type,
        is_read_only=not setting.is_dynamic,
        is_sensitive=is_sensitive,
        doc=setting.doc,
        synonyms=tuple(
            ConfigSynonym(layer.name, None if is_sensitive else setting.render(layer.value), layer.source)
            for layer in layers
        ),
    )


def overrides_of(core: "BrokerCore", kind: int, name: str) -> dict[str, str]:
    """What has been set on the resource itself, as text; empty where it does not exist."""
    if kind == ConfigResourceType.TOPIC:
        topic = core.topics.get(name)
        return dict(topic.configs) if topic is not None else {}
    if kind == ConfigResourceType.CLIENT_METRICS:
        return client_metrics.overrides(core, name)
    if kind == ConfigResourceType.GROUP:
        return _texts(Scope.GROUP, core.settings.group_overrides(name))
    return _texts(Scope.BROKER, core.settings.dynamic(is_cluster_wide=name == CLUSTER_WIDE))


def _texts(scope: Scope, values: Mapping[str, object]) -> dict[str, str]:
    table = BY_NAME[scope]
    return {
        name: (table.get(name) or _broker_setting(name)).render(value) or ""  # type: ignore[arg-type]
        for name, value in values.items()
    }


def repeated(keys: Iterable[tuple[int, str]]) -> set[tuple[int, str]]:
    """Resources that a request names more than once."""
    return {key for key, count in Counter(keys).items() if count > 1}


def require_values(changes: Iterable[tuple[str, str | None]]) -> None:
    """Refuses a request that names a setting twice, or gives it no value."""
    pairs = list(changes)
    if len({name for name, _ in pairs}) < len(pairs):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    nulls = [name for name, value in pairs if value is None]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(nulls)}")


def altered(
    kind: int, current: Mapping[str, str], changes: Iterable[tuple[str, int, str | None]]
) -> dict[str, str]:
    """The overrides after (name, operation, value) changes; KafkaError for what cannot be applied."""
    result = dict(current)
    for name, operation, value in changes:
        match operation:
            case AlterOperation.DELETE:
                result.pop(name, None)
            case AlterOperation.SET:
                result[name] = value or ""
            case AlterOperation.APPEND | AlterOperation.SUBTRACT:
                result[name] = _altered_list(
                    kind, name, result.get(name), AlterOperation(operation), value or ""
                )
            case _:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operations type {operation}")
    return result


def _altered_list(kind: int, name: str, current: str | None, operation: AlterOperation, value: str) -> str:
    # Of client metrics Kafka knows no types here.
    setting = BY_NAME[_SCOPES[ConfigResourceType(kind)]].get(name) if kind in _SCOPES else None
    if kind == ConfigResourceType.BROKER:
        setting = broker_setting(name)
    if setting is None or setting.type is not ConfigType.LIST:
        if kind == ConfigResourceType.BROKER:
            text = f"Config value {operation.name.lower()} is not allowed for config key: {name}"
        else:
            text = f"Can't {operation.name} to key {name} because its type is not LIST."
        raise KafkaError(ErrorCode.INVALID_CONFIG, text)
    if current is None:
        current = setting.render(setting.default) or ""
    items = [item for item in current.split(",") if item]
    for item in value.split(","):
        if operation is AlterOperation.SUBTRACT and item in items:
            items.remove(item)
        elif operation is AlterOperation.APPEND and item not in items:
            items.append(item)
    return ",".join(items)


def alter(
    core: "BrokerCore", kind: int, name: str, texts: Mapping[str, str], *, validate_only: bool = False
) -> None:
    """Gives the resource these overrides and no others, durable when this returns; or raises and changes nothing."""
    if any(len(text.encode()) > VALUE_BYTES_MAX for text in texts.values()):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "The configuration value cannot be added because it exceeds the maximum value size of "
            f"{VALUE_BYTES_MAX} bytes.",
        )
    match kind:
        case ConfigResourceType.TOPIC:
            _alter_topic(core, name, texts, validate_only)
        case ConfigResourceType.BROKER:
            _alter_broker(core, name, texts, validate_only)
        case ConfigResourceType.GROUP:
            _alter_group(core, name, texts, validate_only)
        case ConfigResourceType.CLIENT_METRICS:
            client_metrics.check(name, texts)
            if not validate_only:
                client_metrics.replace(core, name, texts)
        case _:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")


def _alter_topic(core: "BrokerCore", name: str, texts: Mapping[str, str], validate_only: bool) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    check_name(name)
    core.topics.check_configs(texts)
    if core.topics.get(name) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if not validate_only:
        core.topics.set_configs(name, texts)


def _alter_broker(core: "BrokerCore", name: str, texts: Mapping[str, str], validate_only: bool) -> None:
    if name:
        _require_this_node(core, name, "Node", ",")
    rows = {key: broker_setting(key) for key in texts}
    fixed = [key for key, row in rows.items() if row is None or not row.is_dynamic]
    by_listener = [key for key in fixed if key in ONLY_BY_LISTENER]
    if by_listener:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            f"[{', '.join(by_listener)}]; use listener.name.LISTENER.{by_listener[0]}",
        )
    if fixed:
        remarks = [remark_on_unknown(key) for key in fixed if rows[key] is None]
        text = f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
        raise KafkaError(ErrorCode.INVALID_REQUEST, "; ".join([text, *remarks]))
    of_one = [] if name else [key for key in texts if is_of_one_broker(key)]
    if of_one:
        text = f"Cannot update these configs at default cluster level: [{', '.join(of_one)}]"
        cure = f"set them for broker {core.node_id}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{text}; {cure}")
    for key, value in texts.items():
        try:
            _broker_setting(key).parse(value)
        except SettingError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    if name and PINNED in texts:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Broker-level {PINNED} cannot be altered while ELR is enabled."
        )
    if not name and PINNED not in texts:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Cluster-level {PINNED} cannot be removed while ELR is enabled."
        )
    try:
        core.settings.check_dynamic(texts, is_cluster_wide=not name)
    except InvalidSettings as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from None
    if not validate_only:
        before = core.settings.dynamic(is_cluster_wide=not name)
        for key in texts.keys() & FOREIGN.keys() - before.keys():
            logger.warning("%s", remark_on_unknown(key))
        core.settings.replace_dynamic(texts, is_cluster_wide=not name)


def _alter_group(core: "BrokerCore", name: str, texts: Mapping[str, str], validate_only: bool) -> None:
    if not name:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    check_group(core.settings, texts)
    if not validate_only:
        core.settings.replace_group(name, texts)


def check_group(settings: Settings, texts: Mapping[str, str]) -> None:
    """Raises INVALID_CONFIG with Kafka's text when a group cannot have these settings."""
    table = BY_NAME[Scope.GROUP]
    for key in texts:
        if key not in table:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {key}")
    values = {}
    for key, text in texts.items():
        try:
            value = values[key] = table[key].parse(text)
        except SettingError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
        bounds = table[key].bounds
        if bounds is not None and isinstance(value, int):
            _check_bounds(settings, key, value, bounds)
    for kind in ("consumer", "share"):
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        session_ms, heartbeat_ms = (
            values.get(key, settings.broker_default(table[key])) for key in (session, heartbeat)
        )
        assert isinstance(session_ms, int)
        assert isinstance(heartbeat_ms, int)
        if session_ms <= heartbeat_ms:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{session} must be greater than {heartbeat}")


def _check_bounds(settings: Settings, name: str, value: int, bounds: tuple[str, str]) -> None:
    lowest, highest = bounds
    if value < settings.get_int(lowest):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} must be greater than or equal to {lowest}")
    if value > settings.get_int(highest):
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} must be less than or equal to {highest}")


def require_logger_node(core: "BrokerCore", name: str) -> None:
    node_id = bounded_int(name)
    if node_id is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if node_id != core.node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unexpected node id. Expected {core.node_id}, but received {name}"
        )


def _require_this_node(core: "BrokerCore", name: str, what: str, expected: str) -> None:
    try:
        node_id = int(name)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{what} id must be an integer, but it is: {name}"
        ) from None
    if node_id != core.node_id:
        text = f"Unexpected broker id, expected {core.node_id}{expected} but received {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
