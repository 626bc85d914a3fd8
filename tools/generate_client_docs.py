"""Renders the tables of the client's settings and exceptions in docs/reference/; generate_docs.py places them."""

from dataclasses import Field, fields
from enum import Enum
from typing import Any

from headrace.client.errors import TABLE, is_retriable
from headrace.client.settings import ClientSettings, ProducerSettings, ShareSettings, rule_of
from headrace.client.settings_refused import REFUSED, REFUSED_FOR_PRODUCERS, REFUSED_FOR_SHARE_GROUPS


def client_settings() -> str:
    return _table(fields(ClientSettings))


def share_settings() -> str:
    return _table(_own(ShareSettings))


def producer_settings() -> str:
    return _table(_own(ProducerSettings))


def _own(settings: type[ClientSettings]) -> "tuple[Field[Any], ...]":
    common = {each.name for each in fields(ClientSettings)}
    return tuple(each for each in fields(settings) if each.name not in common)


def refused_settings() -> str:
    return _refused({**REFUSED_FOR_SHARE_GROUPS, **REFUSED})


def refused_producer_settings() -> str:
    return _refused(REFUSED_FOR_PRODUCERS)


def _refused(reasons: dict[str, str]) -> str:
    lines = ["| Name | Why not, and what to do |", "|---|---|"]
    for name, reason in sorted(reasons.items()):
        lines.append(f"| `{name}` | {reason[0].upper()}{reason[1:]}. |")
    return "\n".join(lines) + "\n"


def _table(settings: "tuple[Field[Any], ...]") -> str:
    lines = ["| Name | Default | Allowed | What it does | Also known as |", "|---|---|---|---|---|"]
    for each in sorted(settings, key=lambda each: each.name):
        aliases = ", ".join(f"`{alias}`" for alias in rule_of(each).aliases)
        cells = [
            f"`{each.name.replace('_', '.')}`",
            _default(each),
            _allowed(each),
            rule_of(each).doc,
            aliases,
        ]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _default(each: "Field[Any]") -> str:
    value = each.default
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value not in ("", ()) else ""


def _allowed(each: "Field[Any]") -> str:
    value, rule = each.default, rule_of(each)
    if isinstance(value, Enum):
        return ", ".join(f"`{choice.value}`" for choice in type(value))
    if isinstance(value, bool):
        return "`true`, `false`"
    if isinstance(value, int):
        return f"{rule.minimum} to {rule.maximum}"
    return "`host:port`, …" if isinstance(value, tuple) else "text"


def client_errors() -> str:
    lines = ["| Exception | Code | May pass | What to do |", "|---|---|---|---|"]
    for code, (kind, cure) in sorted(TABLE.items()):
        passes = "yes" if is_retriable(code) else ""
        lines.append(f"| `{kind.__name__}` | {code} {code.name} | {passes} | {cure} |")
    return "\n".join(lines) + "\n"
