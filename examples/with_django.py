"""Django's tasks with Headrace as their back end: `django.tasks` of Django 6, else the package `django_tasks`.

Settings, tasks and the worker are in this one file, so that the program is whole. In a project, TASKS is in
settings.py, and the worker is the command `python manage.py headrace_worker`.

    python examples/with_django.py [-b HOST:PORT]
"""

import logging
import threading
import uuid
from contextlib import ExitStack
from datetime import timedelta
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import django
from django.conf import settings
from django.utils import timezone
from support import account, broker_address

from headrace.worker import Backoff

USERS = 40
INTERFACE = "django.tasks" if find_spec("django.tasks") is not None else "django_tasks"


stack = ExitStack()
settings.configure(
    USE_TZ=True,
    INSTALLED_APPS=["headrace.adapters.django"],
    LOGGING_CONFIG=None,
    TASKS={
        "default": {
            "BACKEND": "headrace.adapters.django.HeadraceBackend",
            "OPTIONS": {
                "bootstrap_servers": stack.enter_context(broker_address(__doc__)),
                "group_id": f"site-{uuid.uuid4().hex[:8]}",
                "retries": Backoff(first=0.1, most=0.1, tries=5),
            },
        }
    },
)
django.setup()

tasks = import_module(INTERFACE)  # in a project: from django.tasks import task
greeted: list[str] = []
tried: set[str] = set()
statuses: list[str] = []
lock = threading.Lock()


@tasks.task()
def greet(user: str) -> None:
    with lock:
        is_first, _ = user not in tried, tried.add(user)
    if is_first and user.endswith("0"):
        raise ConnectionError("the mail server is away")
    with lock:
        greeted.append(user)


def main() -> None:
    logging.getLogger("headrace.worker").setLevel(logging.CRITICAL)  # failures are what this example is about
    queue = tasks.default_task_backend.build_queue(None)

    def finished(task_result: Any, **_: Any) -> None:
        with lock:
            statuses.append(str(task_result.status))
            if len(statuses) > USERS:
                queue.stop()

    import_module(f"{INTERFACE}.signals").task_finished.connect(finished)
    for number in range(USERS):
        greet.enqueue(f"user {number}")
    greet.using(run_after=timezone.now() + timedelta(seconds=1)).enqueue("later")
    queue.run()
    print(f"{len(greeted)} users were greeted")
    wanted = [*(f"user {number}" for number in range(USERS)), "later"]
    account(
        every_user_was_greeted_once=sorted(greeted) == sorted(wanted),
        every_task_succeeded=set(statuses) == {"SUCCESSFUL"},
    )


if __name__ == "__main__":
    with stack:
        main()
