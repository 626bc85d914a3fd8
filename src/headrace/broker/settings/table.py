"""All settings in one table, and what to say about names that are not in it."""

from collections.abc import Iterable

from headrace.base.names import nearest
from headrace.broker.settings.access_table import ACCESS_SETTINGS
from headrace.broker.settings.broker_table import BROKER_SETTINGS
from headrace.broker.settings.foreign import FOREIGN, FOREIGN_DYNAMIC
from headrace.broker.settings.group_table import GROUP_SETTINGS
from headrace.broker.settings.security_table import (
    SECURITY_SETTINGS,
    add_to_listeners,
    setting_of_listener,
    without_listener,
)
from headrace.broker.settings.setting import Scope, ScopedSetting
from headrace.broker.settings.share_table import SHARE_SETTINGS
from headrace.broker.settings.topic_table import TOPIC_SETTINGS

SETTINGS: tuple[ScopedSetting, ...] = (
    *BROKER_SETTINGS,
    *SECURITY_SETTINGS,
    *ACCESS_SETTINGS,
    *SHARE_SETTINGS,
    *TOPIC_SETTINGS,
    *GROUP_SETTINGS,
    *FOREIGN_DYNAMIC,
)
BY_NAME: dict[Scope, dict[str, ScopedSetting]] = {
    scope: {setting.name: setting for setting in SETTINGS if setting.scope is scope} for scope in Scope
}
add_to_listeners(
    *(BY_NAME[Scope.BROKER][name] for name in ("max.connections", "max.connection.creation.rate"))
)


def broker_setting(name: str) -> ScopedSetting | None:
    """A setting of the broker, or of one of its listeners."""
    return BY_NAME[Scope.BROKER].get(name) or setting_of_listener(name)


def unknown_settings(names: Iterable[str]) -> list[str]:
    """One sentence on each name that neither this broker nor Apache Kafka has."""
    return [
        remark_on_unknown(name)
        for name in names
        if broker_setting(name) is None and name not in FOREIGN and without_listener(name) not in FOREIGN
    ]


def remark_on_unknown(name: str) -> str:
    """One sentence on a name that no broker setting has: why it changes nothing, or what was meant."""
    reason = FOREIGN.get(name) or FOREIGN.get(without_listener(name))
    if reason is not None:
        return f"{name} has no effect: {reason}"
    meant = nearest(name, BY_NAME[Scope.BROKER])
    return f"unknown setting {name or repr(name)}" + (f"; did you mean {meant}?" if meant else "")
