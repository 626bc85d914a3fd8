"""Django's task interface: `django.tasks` (Django 6.0 or newer), else the package `django_tasks`, which is the same."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

PACKAGE = "django.tasks" if find_spec("django.tasks") is not None else "django_tasks"
base: Any = import_module(f"{PACKAGE}.base")
signals: Any = import_module(f"{PACKAGE}.signals")
tasks: Any = import_module(PACKAGE)
BaseTaskBackend: Any = import_module(f"{PACKAGE}.backends.base").BaseTaskBackend
normalize_json: Any = import_module(
    "django.utils.json" if PACKAGE == "django.tasks" else f"{PACKAGE}.utils"
).normalize_json
