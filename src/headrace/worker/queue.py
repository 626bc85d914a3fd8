"""`Queue`: tasks on Kafka topics, sent from anywhere and worked off by as many workers as you start.

    queue = Queue("localhost:9092", group_id="mailers")

    @queue.task("emails", concurrency=64, retries=Backoff(first=1.0, most=60.0), dead_letter="emails.dead")
    async def send(email: Email, delivery: Delivery) -> None:
        ...

    queue.send("emails", Email(to="ada@example.org"))     # anywhere
    queue.run()                                           # in a worker; or: headrace worker mail:queue

A worker is one process that runs every task of its queue, each with a share consumer of its own. Workers of the same
group share the records; there may be more of them than the topic has partitions.
"""

import asyncio
import contextlib
import inspect
import signal
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, ParamSpec, Self, TypeVar

from headrace.client.producing.record import ProducerRecord
from headrace.worker.backoff import Backoff
from headrace.worker.bodies import ContentType, Header, parse_content_type, write_body
from headrace.worker.crew import Crew, Orders
from headrace.worker.errors import QueueError
from headrace.worker.metrics import TaskMetrics
from headrace.worker.outbox import Outbox, Sent, settings_for
from headrace.worker.task import Task, build_options

P = ParamSpec("P")
R = TypeVar("R")
__all__ = ["Queue", "Sent"]


class Queue:
    """Declares tasks, sends records, runs workers.

    `settings` and keyword arguments are client settings by Kafka's names (`security.protocol`, `client_id=`), those of
    the producer behind `send` too (`compression_type=`, `delivery_timeout_ms=`).
    `content_type` ("json" or "msgpack") is how bodies are written, and read where a record does not say.
    `drain_timeout`: how many seconds functions may go on after SIGTERM before their records are released.
    `start_from`: where a group that has no start of its own begins, "earliest" or "latest"; None leaves it to the
    broker, whose default skips all that was sent before the group's first worker came.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        group_id: str,
        settings: Mapping[str, Any] | None = None,
        content_type: str | ContentType = ContentType.JSON,
        drain_timeout: float = 30.0,
        start_from: Literal["earliest", "latest"] | None = "earliest",
        **kwargs: Any,
    ) -> None:
        if not group_id:
            raise QueueError("Queue(group_id='') is not possible: give the workers' share group a name")
        if start_from not in ("earliest", "latest", None):
            raise QueueError(
                f"Queue(start_from={start_from!r}) is not possible: 'earliest', 'latest' or None"
            )
        if not drain_timeout >= 0:
            raise QueueError(f"Queue(drain_timeout={drain_timeout}) is not possible: give seconds, 0 or more")
        self.group_id = group_id
        self.tasks: dict[str, Task[Any, Any]] = {}
        """By topic."""
        self._given = {**_dotted(settings), **_dotted(kwargs), "bootstrap.servers": bootstrap_servers}
        self._content_type = parse_content_type(content_type)
        self._drain_timeout = drain_timeout
        self._start_from = start_from
        self._crew: Crew | None = None
        self._was_signalled = False
        self._last_metrics: dict[str, TaskMetrics] = {}
        self._connect()

    def _connect(self) -> None:
        settings = settings_for(self._given)
        self.bootstrap_servers = ",".join(str(address) for address in settings.bootstrap_servers)
        self._outbox = Outbox(settings)
        weakref.finalize(self, self._outbox.close)  # also at the program's end: nothing is left half sent

    @property
    def crew(self) -> Crew | None:
        """The tasks at work in this process, while they are; for tests and dashboards."""
        return self._crew

    def configure(
        self, *, bootstrap_servers: str | None = None, settings: Mapping[str, Any] | None = None
    ) -> Callable[[], None]:
        """Changes where the queue is and how it is reached, before it runs; returns what puts it back as it was."""
        before = self._given
        changes = _dotted(settings)
        if bootstrap_servers is not None:
            changes["bootstrap.servers"] = bootstrap_servers
        self._reconnect({**before, **changes})
        return lambda: self._reconnect(before)

    def _reconnect(self, given: dict[str, Any]) -> None:
        if self._crew is not None:
            raise QueueError("the queue is running; configure it before")
        settings_for(given)  # refuses what is wrong while nothing has changed yet
        self._outbox.close()
        self._given = given
        self._connect()

    def task(
        self,
        topic: str,
        *,
        concurrency: int = 16,
        retries: Backoff | None = Backoff(),
        dead_letter: str | None = None,
        timeout: float | None = None,
        key_order: bool = False,
        pool: Literal["thread", "process"] | None = None,
        waiting: int = 100,
    ) -> Callable[[Callable[P, R]], Task[P, R]]:
        """Makes a function `(body: Type)` or `(body: Type, delivery: Delivery)` the task of a topic.

        At most `concurrency` runs at a time in one worker; `waiting` more records may be held while they wait for
        another try (or, with `key_order`, for their turn). Returning accepts the record; an exception or `Retry`
        tries it again as `retries` says (None: never); `Reject`, an unreadable body or the last failed attempt sends
        it to `dead_letter`. `timeout` seconds are the hard end of one run. Async functions run on the event loop,
        others on threads, or in processes with `pool="process"`.
        """

        def declare(function: Callable[P, R]) -> Task[P, R]:
            candidate: Any = function
            if not inspect.isfunction(candidate):
                raise TypeError(f"{function!r} cannot be a task: declare a function")
            options = build_options(
                function,
                topic,
                concurrency=concurrency,
                retries=retries,
                dead_letter=dead_letter,
                timeout=timeout,
                key_order=key_order,
                pool=pool,
                waiting=waiting,
            )
            if topic in self.tasks:
                raise QueueError(
                    f"topic {topic!r} has a task already, {self.tasks[topic].name}: two would get its records by "
                    "chance; use another topic, or another Queue with a group of its own"
                )
            if self._crew is not None:
                raise QueueError("the queue is running; declare its tasks before")
            task = Task(self, function, options, self._content_type)
            self.tasks[topic] = task
            return task

        return declare

    def send(
        self,
        topic: str,
        body: Any,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
    ) -> Sent:
        """Sends a record and returns when the broker has it for sure; from any thread, without asyncio."""
        value, encoded, raw_key = self._encode(body, key, headers)
        return self._outbox.send(topic, value, key=raw_key, headers=encoded)

    async def send_async(
        self,
        topic: str,
        body: Any,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
    ) -> Sent:
        value, encoded, raw_key = self._encode(body, key, headers)
        return await self._outbox.send_async(topic, value, key=raw_key, headers=encoded)

    def send_many(
        self,
        topic: str,
        bodies: Iterable[Any],
        *,
        key: Callable[[Any], str | bytes | None] | None = None,
        headers: Mapping[str, str | bytes] | None = None,
    ) -> list[Sent]:
        """Sends a record for each body, many at a time, and returns when the broker has all of them for sure.

        `key` is called with each body; `headers` go with each record. Bodies are taken as they are needed, so they may
        come from a generator. Where some were not acknowledged, `SomeNotSentError.sent` says which were.
        """
        return self._outbox.send_many(topic, self._encode_many(bodies, key, headers))

    async def send_many_async(
        self,
        topic: str,
        bodies: Iterable[Any],
        *,
        key: Callable[[Any], str | bytes | None] | None = None,
        headers: Mapping[str, str | bytes] | None = None,
    ) -> list[Sent]:
        """`send_many` for asyncio."""
        return await self._outbox.send_many_async(topic, self._encode_many(bodies, key, headers))

    def run(self, *, on_started: Callable[[], None] | None = None) -> None:
        """Works until SIGTERM, SIGINT or `stop`, then drains. A second signal does not wait for running functions."""
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(self._run_with_signals(on_started))

    async def run_async(self, *, on_started: Callable[[], None] | None = None) -> None:
        """The same on a loop of yours, and without signal handlers: call `stop`."""
        if self._crew is not None:
            raise QueueError("the queue is running already")
        if not self.tasks:
            raise QueueError("the queue has no tasks: declare some with @queue.task before it runs")
        crew = self._crew = Crew(
            Orders(
                tasks=tuple(self.tasks.values()),
                group_id=self.group_id,
                given=self._given,
                outbox=self._outbox,
                start_from=self._start_from,
                drain_timeout=self._drain_timeout,
            )
        )
        try:
            await crew.run(on_started)
        finally:
            self._crew = None
            self._last_metrics = crew.metrics()
            await asyncio.get_running_loop().run_in_executor(None, self._outbox.close)

    def stop(self, *, now: bool = False) -> None:
        """Ends `run` and `run_async`, from any thread; `now` does not wait for functions that run."""
        crew = self._crew
        if crew is not None:
            with contextlib.suppress(RuntimeError):  # its loop has just ended
                crew.loop.call_soon_threadsafe(crew.stop, now)

    def metrics(self) -> dict[str, TaskMetrics]:
        """Each task's numbers by its name; after a run those at its end."""
        crew = self._crew
        return crew.metrics() if crew is not None else self._last_metrics

    def close(self) -> None:
        """Stops the producer behind `send`. A later `send` starts it anew."""
        self._outbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def _run_with_signals(self, on_started: Callable[[], None] | None) -> None:
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        if threading.current_thread() is threading.main_thread():
            for number in signals:
                loop.add_signal_handler(number, self._signalled)
        self._was_signalled = False
        try:
            await self.run_async(on_started=on_started)
        finally:
            if threading.current_thread() is threading.main_thread():
                for number in signals:
                    loop.remove_signal_handler(number)

    def _signalled(self) -> None:
        self.stop(now=self._was_signalled)
        self._was_signalled = True

    def _encode_many(
        self,
        bodies: Iterable[Any],
        key: Callable[[Any], str | bytes | None] | None,
        headers: Mapping[str, str | bytes] | None,
    ) -> Iterator[ProducerRecord]:
        if isinstance(bodies, (str, bytes, Mapping)) or not isinstance(bodies, Iterable):
            raise TypeError(f"send_many takes several bodies, not {bodies!r}; for one write send")
        if key is not None and not callable(key):
            raise TypeError(f"send_many(key={key!r}) is not possible: give a function of a body, or None")

        def each() -> Iterator[ProducerRecord]:
            for body in bodies:
                value, encoded, raw_key = self._encode(body, None if key is None else key(body), headers)
                yield ProducerRecord(value, raw_key, encoded)

        return each()

    def _encode(
        self, body: Any, key: str | bytes | None, headers: Mapping[str, str | bytes] | None
    ) -> tuple[bytes | None, tuple[Header, ...], bytes | None]:
        given = {
            name: value.encode() if isinstance(value, str) else value
            for name, value in (headers or {}).items()
        }
        if body is None and key is None:
            raise TypeError("a record needs a key or a body: give key=, or send something")
        value, own = write_body(body, self._content_type)
        encoded = (*given.items(), *(header for header in own if header[0] not in given))
        return value, encoded, key.encode() if isinstance(key, str) else key


def _dotted(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """One spelling, so that a later setting replaces an earlier one."""
    return {name.replace("_", "."): value for name, value in (settings or {}).items()}


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
