"""Renders the tables of the client's settings and exceptions in docs/reference/; generate_docs.py places them."""

from headrace.base.settings import ConfigType
from headrace.base.tables import FieldSetting, rows
from headrace.client.errors import TABLE, is_retriable
from headrace.client.settings import ClientSettings, ProducerSettings, ShareSettings
from headrace.client.settings_refused import REFUSED, REFUSED_FOR_PRODUCERS, REFUSED_FOR_SHARE_GROUPS
from headrace.spark.options import SourceOptions


def client_settings() -> str:
    return _table(ClientSettings)


def share_settings() -> str:
    return _table(ShareSettings, without=ClientSettings)


def producer_settings() -> str:
    return _table(ProducerSettings, without=ClientSettings)


def refused_settings() -> str:
    return _refused({**REFUSED_FOR_SHARE_GROUPS, **REFUSED})


def refused_producer_settings() -> str:
    return _refused(REFUSED_FOR_PRODUCERS)


def _refused(reasons: dict[str, str]) -> str:
    lines = ["| Name | Why not, and what to do |", "|---|---|"]
    for name, reason in sorted(reasons.items()):
        lines.append(f"| `{name}` | {reason[0].upper()}{reason[1:]}. |")
    return "\n".join(lines) + "\n"


def _table(table: type[ClientSettings], *, without: type[ClientSettings] | None = None) -> str:
    known = rows(without) if without is not None else {}
    lines = ["| Name | Default | Allowed | What it does | Also known as |", "|---|---|---|---|---|"]
    for row in sorted(
        (row for field, row in rows(table).items() if field not in known), key=lambda row: row.name
    ):
        default = row.render(row.default)
        aliases = ", ".join(f"`{alias}`" for alias in row.aliases)
        cells = [f"`{row.name}`", f"`{default}`" if default else "", _allowed(row), row.doc, aliases]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def spark_options() -> str:
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for row in rows(SourceOptions).values():
        names = " or ".join(f"`{name}`" for name in (row.name, *row.aliases))
        lines.append(f"| {names} | {row.default_text or f'`{row.render(row.default)}`'} | {row.doc} |")
    return "\n".join(lines) + "\n"


def _allowed(row: FieldSetting) -> str:
    choices = ("true", "false") if row.type is ConfigType.BOOLEAN else row.choices
    return ", ".join(f"`{choice}`" for choice in choices) or row.allowed


def client_errors() -> str:
    lines = ["| Exception | Code | May pass | What to do |", "|---|---|---|---|"]
    for code, (kind, cure) in sorted(TABLE.items()):
        passes = "yes" if is_retriable(code) else ""
        lines.append(f"| `{kind.__name__}` | {code} {code.name} | {passes} | {cure} |")
    return "\n".join(lines) + "\n"
