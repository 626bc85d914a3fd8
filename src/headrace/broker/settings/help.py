"""`headrace serve --help-settings`: every setting the broker understands, from the one table."""

import textwrap

from headrace.broker.settings.setting import Scope, ScopedSetting
from headrace.broker.settings.table import SETTINGS

TITLES = {
    Scope.BROKER: "Broker settings (--set KEY=VALUE, --config server.properties)",
    Scope.TOPIC: "Topic settings (on a topic, by any Kafka admin tool)",
    Scope.GROUP: "Group settings (on a group, by any Kafka admin tool)",
}


def render_help() -> str:
    lines = []
    for scope, title in TITLES.items():
        lines += [title, ""]
        for setting in sorted((row for row in SETTINGS if row.scope is scope), key=lambda row: row.name):
            lines += _lines(setting)
        lines.append("")
    return "\n".join(lines).rstrip()


def _lines(setting: ScopedSetting) -> list[str]:
    default = setting.render(setting.default)
    facts = [setting.type.name.lower(), f"default {default!r}" if default is not None else "no default"]
    if setting.allowed:
        facts.append(setting.allowed)
    doc = textwrap.wrap(setting.doc, 100, initial_indent="      ", subsequent_indent="      ")
    return [f"  {setting.name}  ({', '.join(facts)})", *doc]
