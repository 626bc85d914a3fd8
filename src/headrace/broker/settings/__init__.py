"""The broker's settings: one declared table, and the values in force."""

from headrace.base.settings import SettingError
from headrace.broker.settings.help import render_help
from headrace.broker.settings.properties import from_keywords, parse_assignments, read_properties
from headrace.broker.settings.providers import resolve_references
from headrace.broker.settings.setting import Scope, ScopedSetting
from headrace.broker.settings.table import BY_NAME, SETTINGS, unknown_settings
from headrace.broker.settings.values import InvalidSettings, SettingOrigin, Settings

__all__ = [
    "BY_NAME",
    "SETTINGS",
    "InvalidSettings",
    "Scope",
    "ScopedSetting",
    "SettingError",
    "SettingOrigin",
    "Settings",
    "from_keywords",
    "parse_assignments",
    "read_properties",
    "render_help",
    "resolve_references",
    "unknown_settings",
]
