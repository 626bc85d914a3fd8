"""`python manage.py headrace_worker`: runs enqueued tasks until it is told to stop."""

from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from headrace.adapters.django.backend import HeadraceBackend
from headrace.adapters.django.interface import base, tasks
from headrace.wire.errors import KafkaError
from headrace.worker.errors import QueueError
from headrace.worker.queue import Queue

COUNTS = ("succeeded", "retried", "dead_lettered", "released")


class Command(BaseCommand):  # type: ignore[misc]
    help = "Runs tasks of a Headrace back end. SIGTERM and Ctrl+C let running tasks finish; a second one does not."

    queue: Queue | None = None
    """The one at work."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--backend",
            default=base.DEFAULT_TASK_BACKEND_ALIAS,
            metavar="ALIAS",
            help="A back end in TASKS. Default: %(default)s.",
        )
        parser.add_argument(
            "--queue",
            action="append",
            dest="queues",
            metavar="NAME",
            help="A queue of the back end. Can be repeated. Default: all of QUEUES.",
        )
        parser.add_argument(
            "--concurrency",
            type=int,
            metavar="N",
            help="Tasks that run at a time, for each queue. Default: as OPTIONS say, else 16.",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        backend = self._backend(options["backend"])
        changes = {} if options["concurrency"] is None else {"concurrency": options["concurrency"]}
        try:
            self.queue = queue = backend.build_queue(options["queues"], **changes)
            queue.run(on_started=lambda: self.stdout.write(_describe(queue)))
        except (ImproperlyConfigured, QueueError, KafkaError, TimeoutError) as error:
            raise CommandError(str(error)) from error
        numbers = queue.metrics().values()
        counts = (
            f"{sum(getattr(each, name) for each in numbers)} {name.replace('_', '-')}" for name in COUNTS
        )
        self.stdout.write(f"stopped: {', '.join(counts)}")

    def _backend(self, alias: str) -> HeadraceBackend:
        try:
            backend = tasks.task_backends[alias]
        except ImproperlyConfigured as error:
            raise CommandError(f"--backend {alias}: {error}") from error
        if not isinstance(backend, HeadraceBackend):
            kind = f"{type(backend).__module__}.{type(backend).__qualname__}"
            raise CommandError(f"--backend {alias} is a {kind}; give the alias of a HeadraceBackend")
        return backend


def _describe(queue: Queue) -> str:
    each = (f"{task.topic} ({task.options.concurrency} at a time)" for task in queue.tasks.values())
    return f"working for group {queue.group_id} on {queue.bootstrap_servers}: {', '.join(each)}"
