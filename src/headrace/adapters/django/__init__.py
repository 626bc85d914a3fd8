"""A back end for Django's tasks: `task.enqueue()` sends a record, and `manage.py headrace_worker` runs it.

    INSTALLED_APPS = [..., "headrace.adapters.django"]
    TASKS = {
        "default": {
            "BACKEND": "headrace.adapters.django.HeadraceBackend",
            "QUEUES": ["default", "emails"],
            "OPTIONS": {"bootstrap_servers": "localhost:9092", "group_id": "shop"},
        }
    }

The interface is `django.tasks` of Django 6.0 or newer, else the package `django_tasks`. See docs/how-to/django.md.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.adapters.django.backend import HeadraceBackend

__all__ = ["HeadraceBackend"]


def __getattr__(name: str) -> Any:
    """Imported when first used: Django imports this package while it loads its apps."""
    if name == "HeadraceBackend":
        from headrace.adapters.django.backend import HeadraceBackend

        return HeadraceBackend
    raise AttributeError(f"module 'headrace.adapters.django' has no attribute {name!r}")
