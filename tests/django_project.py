"""A Django project for tests: settings without a file, and SQLite. Import it before anything that needs settings."""

from importlib.util import find_spec
from typing import Any

import django
from django.conf import settings

INTERFACE = "django.tasks" if find_spec("django.tasks") is not None else "django_tasks"

LOGGER = INTERFACE


def tasks_setting(
    servers: str = "localhost:1", *, queues: Any = ("default", "emails"), **options: Any
) -> Any:
    """The setting TASKS with one back end."""
    return {
        "default": {
            "BACKEND": "headrace.adapters.django.HeadraceBackend",
            "QUEUES": list(queues),
            "OPTIONS": {"bootstrap_servers": servers, "group_id": "shop", **options},
        }
    }


if not settings.configured:
    settings.configure(
        USE_TZ=True,
        TIME_ZONE="Europe/Berlin",
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=[
            "headrace.adapters.django",
            *(["django_tasks"] if INTERFACE == "django_tasks" else []),
        ],
        LOGGING_CONFIG=None,
        TASKS=tasks_setting(),
    )
    django.setup()
