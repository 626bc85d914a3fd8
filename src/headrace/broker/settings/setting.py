"""A setting of the broker, of a topic or of a group: what the one table adds to a row (base/settings.py)."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from headrace.base.settings import ConfigType, Setting, Value


class Scope(Enum):
    BROKER = "broker"
    TOPIC = "topic"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker setting that gives a topic or group setting its default; `factor` turns its unit into ours."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopedSetting(Setting):
    scope: Scope
    is_dynamic: bool = False
    """May be altered while the broker runs. Topic and group settings always may."""
    is_internal: bool = False
    """Works when set, but is not shown: Kafka keeps such settings for its tests."""
    has_effect: bool = True
    """False: taken and shown because Kafka's tools set it, but there is nothing here that it could change."""
    synonyms: tuple[Synonym, ...] = ()
    bounds: tuple[str, str] | None = None
    """The broker settings that say how small and how large a group may set it."""


def row(
    scope: Scope,
    name: str,
    kind: ConfigType,
    default: Value | None,
    doc: str,
    *synonyms: Synonym | str,
    **rest: Any,
) -> ScopedSetting:
    return ScopedSetting(
        scope=scope,
        name=name,
        type=kind,
        default=default,
        doc=doc,
        synonyms=tuple(Synonym(each) if isinstance(each, str) else each for each in synonyms),
        **rest,
    )
