"""Tasks of the Django project for tests. What they do is in `SEEN` and `DO`, which tests set and read."""

import asyncio
from collections.abc import Callable
from importlib import import_module
from typing import Any

from tests import django_project

# isort: split
from asgiref.sync import sync_to_async
from django.db import connection

tasks: Any = import_module(django_project.INTERFACE)
task = tasks.task
SEEN: list[Any] = []
DO: list[Callable[[], Any]] = []
"""What `obey` does, one for each run; the last one stays."""


@task()
def note(*args: Any, **kwargs: Any) -> None:
    SEEN.append((list(args), kwargs))


@task(queue_name="emails")
async def note_async(word: str) -> str:
    await asyncio.sleep(0)
    SEEN.append(word)
    return word.upper()


@task(takes_context=True)
def note_context(context: Any, word: str) -> None:
    result = context.task_result
    SEEN.append((word, result.id, context.attempt, result.status, result.worker_ids))


@task(takes_context=True)
def obey(context: Any) -> Any:
    SEEN.append(context.attempt)
    return (DO.pop(0) if len(DO) > 1 else DO[0])()


@task()
async def store_async(word: str) -> None:
    await sync_to_async(_store)(word)


def _store(word: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("insert into words values (%s)", [word])


class Nested:
    @task()
    def note_nested(word: str) -> None:  # noqa: N805
        SEEN.append(word)


def plain() -> None:
    """Not a task."""
