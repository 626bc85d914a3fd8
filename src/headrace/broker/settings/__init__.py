"""The broker's settings: one declared table, and the values in force."""

from headrace.broker.settings.help import render_help
from headrace.broker.settings.properties import from_keywords, parse_assignments, read_properties
from headrace.broker.settings.setting import Scope, Setting, SettingError, Synonym, Type, Value
from headrace.broker.settings.table import BY_NAME, SETTINGS
from headrace.broker.settings.values import InvalidSettings, SettingOrigin, Settings, Source

__all__ = [
    "BY_NAME",
    "SETTINGS",
    "InvalidSettings",
    "Scope",
    "Setting",
    "SettingError",
    "SettingOrigin",
    "Settings",
    "Source",
    "Synonym",
    "Type",
    "Value",
    "from_keywords",
    "parse_assignments",
    "read_properties",
    "render_help",
]
