"""`headrace worker MODULE:QUEUE`: runs the tasks of a queue until it is told to stop."""

import contextlib
import importlib
import logging
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from headrace.broker.addresses import parse_address
from headrace.cli.failures import Refused
from headrace.client.properties import read_properties
from headrace.wire.errors import KafkaError
from headrace.worker.errors import QueueError
from headrace.worker.metrics import RUN_SECONDS_BOUNDS
from headrace.worker.queue import Queue


def run(
    place: str,
    servers: str | None,
    assignments: list[str],
    config: Path | None,
    *,
    verbose: bool,
    http: str | None = None,
) -> int:
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        queue = find_queue(place)
        given: dict[str, Any] = dict(read_properties(config)) if config is not None else {}
        queue.configure(
            bootstrap_servers=servers or given.pop("bootstrap.servers", None),
            settings={**given, **_parse(assignments)},
        )
        with _metrics(queue, http):
            queue.run(on_started=lambda: _say(_describe(queue)))
    except (QueueError, KafkaError, TimeoutError, ValueError, Refused) as error:
        print(f"headrace worker: {error}", file=sys.stderr)
        return 1
    _say(_summary(queue))
    return 0


@contextlib.contextmanager
def _metrics(queue: Queue, http: str | None) -> Iterator[None]:
    """The queue's numbers at http://HOST:PORT/metrics while it runs."""
    if http is None:
        yield
        return
    try:
        from headrace.web.worker_metrics import MetricsServer, worker_families
    except ModuleNotFoundError as error:
        raise Refused(
            f"--http needs {error.name}, which is not installed: pip install 'headrace[web]'"
        ) from None
    host, port = parse_address(http)

    def collect() -> Iterable[Any]:
        return worker_families(queue.metrics(), RUN_SECONDS_BOUNDS, group=queue.group_id)

    try:
        server = MetricsServer(host, port, collect)
    except OSError as error:
        raise Refused(f"--http {http} cannot be used: {(error.strerror or str(error)).lower()}") from None
    with server:
        _say(f"metrics on {server.url}")
        yield


def find_queue(place: str) -> Queue:
    """The queue that `MODULE:NAME` stands for. QueueError names the part of it that was wrong."""
    module_name, colon, name = place.partition(":")
    if not colon or not module_name or not name:
        raise QueueError(
            f"{place!r} is no MODULE:QUEUE; for `queue = Queue(...)` in mail.py write mail:queue"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does; a console script's path begins elsewhere
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise QueueError(f"there is no module {module_name!r} in {here} or on the Python path") from None
        raise QueueError(f"module {module_name!r} cannot be imported: {error}") from error
    except Exception as error:
        raise QueueError(
            f"module {module_name!r} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    queue = module
    for part in name.split("."):
        if not hasattr(queue, part):
            found = [key for key, value in vars(module).items() if isinstance(value, Queue)]
            hint = f"; its queues: {', '.join(found)}" if found else "; it has no Queue at all"
            raise QueueError(f"module {module_name!r} has no {name!r}{hint}")
        queue = getattr(queue, part)
    if not isinstance(queue, Queue):
        raise QueueError(f"{place} is a {type(queue).__name__}, not a Queue")
    return queue


def _parse(assignments: list[str]) -> dict[str, str]:
    settings = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise QueueError(f"-X {assignment!r} is no KEY=VALUE")
        settings[name.strip()] = value.strip()
    return settings


def _describe(queue: Queue) -> str:
    tasks = ", ".join(f"{task.topic} ({task.options.concurrency} at a time)" for task in queue.tasks.values())
    return f"working for group {queue.group_id} on {queue.bootstrap_servers}: {tasks}"


def _summary(queue: Queue) -> str:
    metrics = queue.metrics().values()

    def total(name: str) -> int:
        return sum(getattr(each, name) for each in metrics)

    names = ("received", "succeeded", "retried", "dead_lettered", "discarded", "released", "lost")
    return "stopped: " + ", ".join(f"{total(name)} {name.replace('_', '-')}" for name in names)


def _say(text: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody reads it; the work goes on
        print(text, flush=True)
