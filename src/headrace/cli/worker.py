"""`headrace worker MODULE:QUEUE...`: runs the tasks of queues until it is told to stop."""

import contextlib
import importlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from headrace.broker.addresses import parse_address
from headrace.cli.failures import Refused
from headrace.cli.logs import LogFormat, LogLevel, configure
from headrace.cli.worker_processes import Supervisor, stop_with_parent
from headrace.client.properties import read_properties
from headrace.wire.errors import KafkaError
from headrace.worker.errors import QueueError
from headrace.worker.metrics import RUN_SECONDS_BOUNDS
from headrace.worker.queue import Queue
from headrace.worker.together import run_queues


def supervise(
    places: list[str], options: list[str], *, processes: int, reload: bool, http: str | None
) -> int:
    """Runs the command in several processes, which are started anew when they die or files change."""
    address = parse_address(http) if http is not None else None

    def command(number: int) -> list[str]:
        own = [] if address is None else ["--http", f"{address[0]}:{address[1] + number}"]
        return [sys.executable, "-m", "headrace", "worker", *places, *options, *own]

    return Supervisor(command, processes, folder=Path.cwd() if reload else None).run()


def run(
    places: list[str],
    servers: str | None,
    assignments: list[str],
    config: Path | None,
    *,
    verbose: bool,
    http: str | None = None,
    log_level: LogLevel = LogLevel.WARNING,
    log_format: LogFormat = LogFormat.TEXT,
) -> int:
    configure(LogLevel.INFO if verbose and log_level is LogLevel.WARNING else log_level, log_format, name="")
    try:
        queues = [find_queue(place) for place in dict.fromkeys(places)]
        given: dict[str, Any] = dict(read_properties(config)) if config is not None else {}
        bootstrap_servers = servers or given.pop("bootstrap.servers", None)
        for queue in queues:
            queue.configure(bootstrap_servers=bootstrap_servers, settings={**given, **_parse(assignments)})
        stop_with_parent([queue.stop for queue in queues])
        with _metrics(queues, http):
            run_queues(queues, on_started=lambda: _say(_describe(queues)))
    except (QueueError, KafkaError, TimeoutError, ValueError, Refused) as error:
        print(f"headrace worker: {error}", file=sys.stderr)
        return 1
    _say(_summary(queues))
    return 0


@contextlib.contextmanager
def _metrics(queues: list[Queue], http: str | None) -> Iterator[None]:
    """The queues' numbers at http://HOST:PORT/metrics while it runs."""
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
        families: dict[str, Any] = {}
        for queue in queues:
            for family in worker_families(queue.metrics(), RUN_SECONDS_BOUNDS, group=queue.group_id):
                known = families.setdefault(family.name, family)
                if known is not family:
                    known.samples.extend(family.samples)
        return families.values()

    def status() -> Any:
        return queues[0].status() if len(queues) == 1 else {"queues": [queue.status() for queue in queues]}

    try:
        server = MetricsServer(host, port, collect, status)
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
            f"{place!r} is not MODULE:QUEUE; for `queue = Queue(...)` in mail.py write mail:queue"
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
            raise QueueError(f"-X {assignment!r} is not KEY=VALUE")
        settings[name.strip()] = value.strip()
    return settings


def _describe(queues: list[Queue]) -> str:
    return "\n".join(_describe_one(queue) for queue in queues)


def _describe_one(queue: Queue) -> str:
    tasks = ", ".join(f"{task.topic} ({task.options.concurrency} at a time)" for task in queue.tasks.values())
    return f"working for group {queue.group_id} on {queue.bootstrap_servers}: {tasks}"


def _summary(queues: list[Queue]) -> str:
    metrics = [numbers for queue in queues for numbers in queue.metrics().values()]

    def total(name: str) -> int:
        return sum(getattr(each, name) for each in metrics)

    names = ("received", "succeeded", "retried", "dead_lettered", "discarded", "released", "lost")
    return "stopped: " + ", ".join(f"{total(name)} {name.replace('_', '-')}" for name in names)


def _say(text: str) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody reads it; the work goes on
        print(text, flush=True)
