"""All settings in one table, and what to say about names that are not in it."""

import difflib
from collections.abc import Iterable

from headrace.broker.settings.broker_table import BROKER_SETTINGS
from headrace.broker.settings.foreign import FOREIGN, FOREIGN_DYNAMIC
from headrace.broker.settings.group_table import GROUP_SETTINGS
from headrace.broker.settings.setting import Scope, Setting
from headrace.broker.settings.share_table import SHARE_SETTINGS
from headrace.broker.settings.topic_table import TOPIC_SETTINGS

SETTINGS: tuple[Setting, ...] = (
    *BROKER_SETTINGS,
    *SHARE_SETTINGS,
    *TOPIC_SETTINGS,
    *GROUP_SETTINGS,
    *FOREIGN_DYNAMIC,
)
BY_NAME: dict[Scope, dict[str, Setting]] = {
    scope: {setting.name: setting for setting in SETTINGS if setting.scope is scope} for scope in Scope
}


def remark_on_unknown(name: str) -> str:
    """One sentence on a name that no broker setting has: why it changes nothing, or what was meant."""
    if name in FOREIGN:
        return f"{name} has no effect: {FOREIGN[name]}"
    meant = nearest(name, BY_NAME[Scope.BROKER])
    return f"unknown setting {name}" + (f"; did you mean {meant}?" if meant else "")


def nearest(name: str, names: Iterable[str]) -> str | None:
    found = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return found[0] if found else None
