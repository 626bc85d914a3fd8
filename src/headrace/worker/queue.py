"""`Queue`: tasks on Kafka topics, sent from anywhere and run by as many workers as you start.

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
import logging
import signal
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta, tzinfo
from types import TracebackType
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar, Unpack, overload

from headrace.base.loops import new_event_loop
from headrace.client.background import BackgroundLoop
from headrace.client.producing.record import ProducerRecord
from headrace.wire.dead_letter import MESSAGE_ID
from headrace.worker.backoff import Backoff
from headrace.worker.batch import Batch
from headrace.worker.bodies import ContentType, Header, parse_content_type, write_body
from headrace.worker.circuit import Breaker
from headrace.worker.crew import Crew, Orders
from headrace.worker.errors import QueueError
from headrace.worker.hooks import ErrorHook, Lifespan, Middleware, OutgoingTask, TaskRun, lifespan_of, sending
from headrace.worker.later import later_topic
from headrace.worker.metrics import TaskMetrics
from headrace.worker.outbox import Outbox, Sent, settings_for
from headrace.worker.periodic import Firing, Periodic, periodic_of, schedule_of
from headrace.worker.schedule import Schedule, Scheduled
from headrace.worker.task import BatchTask, Task, TaskSettings, build_options
from headrace.worker.threads import run_on_thread
from headrace.worker.transactions.at_work import close_databases, databases_of
from headrace.worker.transactions.copies import new_message_id
from headrace.worker.transactions.database import Database, WorkerDatabase
from headrace.worker.transactions.relay import OutboxRelay
from headrace.worker.transactions.sending import Stored, store, store_async, store_steps
from headrace.worker.transactions.statements import OutboxRecord, with_message_id
from headrace.worker.typed import TypedTasks

logger = logging.getLogger("headrace.worker")

B = TypeVar("B")
P = ParamSpec("P")
R = TypeVar("R")
__all__ = ["Queue", "Sent"]


class Queue:
    """Declares tasks, sends records and runs workers.

    `group_id`: the share group of the workers. A program that only sends needs none, unless it schedules.
    `settings` and keyword arguments are client settings by Kafka's names (`security.protocol`, `client_id=`), including
    those of the queue's producer (`compression_type=`, `delivery_timeout_ms=`).
    `content_type` ("json" or "msgpack"): how bodies are encoded, and decoded if a record has no content type header.
    `drain_timeout`: how many seconds functions may continue after SIGTERM before their records are released.
    `start_from`: where a group without start offsets begins, "earliest" or "latest". None uses the setting of the
    broker, whose default skips all records that were sent before the first worker of the group joined.
    `hold_max`: a record that waits up to this many seconds for a retry keeps its lock; for longer delays, a copy of it
    is scheduled.
    `database`: where `send(transaction=...)` and `send(unique=...)` store records, which the workers then send.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        *,
        group_id: str | None = None,
        settings: Mapping[str, Any] | None = None,
        content_type: str | ContentType = ContentType.JSON,
        drain_timeout: float = 30.0,
        start_from: Literal["earliest", "latest"] | None = "earliest",
        hold_max: float = 60.0,
        database: Database | None = None,
        **kwargs: Any,
    ) -> None:
        if group_id is not None and (not isinstance(group_id, str) or not group_id):
            raise QueueError(f"Queue: group_id must be a non-empty string or None, got {group_id!r}")
        if start_from not in ("earliest", "latest", None):
            raise QueueError(f"Queue: start_from must be 'earliest', 'latest' or None, got {start_from!r}")
        if not hold_max >= 0:
            raise QueueError(f"Queue: hold_max must be >= 0 seconds, got {hold_max}")
        if not drain_timeout >= 0:
            raise QueueError(f"Queue: drain_timeout must be >= 0 seconds, got {drain_timeout}")
        if database is not None and not isinstance(database, Database):
            raise QueueError(f"Queue: database must be a database such as SqliteDatabase, got {database!r}")
        self._group_id = group_id
        self.database = database
        self.tasks: dict[str, Task[Any, Any, Any]] = {}
        """By topic; several tasks of one topic are one `TypedTasks`."""
        self._given = {**_dotted(settings), **_dotted(kwargs), "bootstrap.servers": bootstrap_servers}
        self._content_type = parse_content_type(content_type)
        self._drain_timeout = drain_timeout
        self._start_from = start_from
        self._hold_max = hold_max
        self._periodic: list[Periodic] = []
        self.middleware: list[Middleware] = []
        self.lifespan_function: Lifespan | None = None
        self.state: Any = None
        """What the lifespan has yielded, while the worker runs."""
        self._running: asyncio.Task[None] | None = None
        self.now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
        """The time for what is scheduled; for tests."""
        self._crew: Crew | None = None
        self._was_signaled = False
        self._last_metrics: dict[str, TaskMetrics] = {}
        self.make_loop: Callable[[], asyncio.AbstractEventLoop] = new_event_loop
        """Makes the loop of the worker's own thread; for tests."""
        self._connect()

    def _connect(self) -> None:
        settings = settings_for(self._given)
        self.bootstrap_servers = ",".join(str(address) for address in settings.bootstrap_servers)
        self._outbox = Outbox(settings)
        self._own_schedule: Schedule | None = None
        weakref.finalize(self, self._outbox.close)  # also at the program's end: nothing is left half sent

    @property
    def group_id(self) -> str:
        """The share group of the workers. QueueError where none was given: what asks for it cannot do without."""
        if self._group_id is None:
            raise QueueError(
                "this queue can only send, since it has no group_id. Running tasks, scheduled records (delay=, at=) "
                "and the outbox belong to a share group: Queue(..., group_id='NAME')"
            )
        return self._group_id

    @property
    def _schedule(self) -> Schedule:
        if self._own_schedule is None:
            self._own_schedule = Schedule(self._given, self.group_id, now_ms=lambda: self.now_ms())
        return self._own_schedule

    @property
    def crew(self) -> Crew | None:
        """The running tasks of this process, or None; for tests and dashboards."""
        return self._crew

    def configure(
        self, *, bootstrap_servers: str | None = None, settings: Mapping[str, Any] | None = None
    ) -> Callable[[], None]:
        """Changes the client settings before the queue runs. Returns a function that restores them."""
        before = self._given
        changes = _dotted(settings)
        if bootstrap_servers is not None:
            changes["bootstrap.servers"] = bootstrap_servers
        self._reconnect({**before, **changes})
        return lambda: self._reconnect(before)

    def _reconnect(self, given: dict[str, Any]) -> None:
        if self._crew is not None:
            raise QueueError("the queue is running; call configure before run")
        settings_for(given)  # refuses what is wrong while nothing has changed yet
        self._outbox.close()
        self._given = given
        self._connect()

    @overload
    def task(
        self, topic: str, *, batch: Batch, **options: Unpack[TaskSettings]
    ) -> Callable[[Callable[Concatenate[list[B], P], R]], BatchTask[B, P, R]]: ...

    @overload
    def task(
        self, topic: str, *, batch: None = None, **options: Unpack[TaskSettings]
    ) -> Callable[[Callable[Concatenate[B, P], R]], Task[B, P, R]]: ...

    def task(
        self,
        topic: str,
        *,
        concurrency: int = 16,
        retries: Backoff | None = Backoff(),
        dead_letter: str | None = None,
        timeout: float | None = None,
        key_order: bool | Literal["strict"] = False,
        pool: Literal["thread", "process"] | None = None,
        waiting: int = 100,
        breaker: Breaker | None = Breaker(),
        batch: Batch | None = None,
        type: str | None = None,
        limit: int | None = None,
        rate: str | None = None,
        group_rate: str | None = None,
        once: Database | None = None,
    ) -> Callable[[Callable[..., Any]], Task[Any, Any, Any]]:
        """Makes a function `(body: Type)` or `(body: Type, delivery: Delivery)` the task of a topic.

        When the function returns, the record is accepted. After an exception or `Retry`, it runs again, as configured
        by `retries` (None: never). After `Reject`, a body that cannot be decoded, or the last failed attempt, the
        record is sent to the topic `dead_letter`. Without `dead_letter`, such a record is held and retried, so it is
        not lost.

        `concurrency`: the maximum number of runs at a time in one worker. `waiting` more records may be held while they
        wait for a retry or, with `key_order`, for their turn.
        `timeout`: a run is stopped after this many seconds.
        `breaker`: when to pause the task because all its runs fail (None: never).
        `pool`: async functions run on the event loop, other functions on threads, or in processes with "process".
        `once`: runs the function in a transaction of this database and passes it the connection, so that its effects
        there happen exactly once.
        `batch`: the function gets several records in one call, as `(bodies: list[Type])` or `(bodies: list[Type],
        deliveries: list[Delivery])`, and returns an outcome for each, or None if all are done; see `Batch`.
        `type`: a topic can have several tasks. Each gets the records with its type in the header `headrace.type`, which
        `Task.send` sets, and a task without a `type` gets all other records.
        `key_order`: records of one key run one after another, with True in one worker, with "strict" in the whole
        group, whose workers are then members of the consumer group GROUP.TOPIC.strict.
        `limit`: the maximum number of runs at a time in all workers of the group together.
        `rate` ("100/s"): how many runs may start in one worker; `group_rate`: in all of them.
        """

        def declare(function: Callable[..., Any]) -> Task[Any, Any, Any]:
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
                breaker=breaker,
                batch=batch,
                type=type,
                limit=limit,
                rate=rate,
                group_rate=group_rate,
                once=once,
            )
            kind = Task if batch is None else BatchTask
            task: Task[Any, Any, Any] = kind(self, function, options, self._content_type)
            self._add(task)
            return task

        return declare

    def _add(self, task: Task[Any, Any, Any]) -> None:
        topic, kind = task.topic, task.options.type
        known = self.tasks.get(topic)
        for each in known.members if known is not None else ():
            if each.options.type == kind or each.options.batch is not None or task.options.batch is not None:
                raise QueueError(
                    f"topic {topic!r} has a task already, {each.name}: with two, a record would go to either of them; "
                    "give each task a type=, or use another topic or a Queue with another group"
                )
        if self._crew is not None:
            raise QueueError("the queue is running; declare its tasks before run")
        if isinstance(known, TypedTasks):
            known.add(task)
        elif known is not None:
            typed = TypedTasks(self, known)
            typed.add(task)
            self.tasks[topic] = typed
        else:
            self.tasks[topic] = task if kind is None else TypedTasks(self, task)

    def use(self, middleware: Middleware) -> None:
        """Adds middleware around every `send` and every run of this queue; see `headrace.worker.hooks`."""
        self.middleware.append(middleware)

    def on_error(
        self, function: Callable[[TaskRun, BaseException], R]
    ) -> Callable[[TaskRun, BaseException], R]:
        """Calls `function(run, error)` for every run that fails, but not for Retry and Reject."""
        self.use(ErrorHook(function))
        return function

    def lifespan(self, function: Lifespan) -> Lifespan:
        """Declares a generator, async or not, with the setup and cleanup of a worker. It yields `queue.state`.

        It runs on the event loop before the first task and after the last one, and in each process of a pool.
        """
        self.lifespan_function = function
        return function

    def send(
        self,
        topic: str,
        body: Any,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        timeout: float | None = None,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        transaction: Any = None,
        unique: str | None = None,
        for_: float | timedelta | None = None,
    ) -> Sent:
        """Sends a record and returns when the broker has stored it. Can be called on any thread.

        With `delay` (seconds or a timedelta) or `at` (a datetime with a time zone), the record is sent to its topic at
        that time. The result is then its position among the scheduled records; `schedule` returns an ID.

        Raises SendError after `timeout` seconds (None: `delivery.timeout.ms`). The record may still be written later.
        Use `send_async` in coroutines: `send` blocks the event loop, and warns about it.

        With `transaction`, your connection or session, the record is written to the outbox of that database with your
        data, and is sent if you commit. With `unique`, it is not written if a record with the same unique text was
        written in the last `for_` seconds. Both return a `Stored`.
        """
        value, encoded, raw_key = self.encode(body, key, headers)
        if transaction is not None or unique is not None or for_ is not None:
            with self._storing(topic, value, raw_key, encoded, delay, at) as record:
                steps = store_steps(record, topic, unique, for_, self.now_ms())
                return Stored.of(topic, store(steps, transaction, self.database))
        _warn_in_a_loop("send")
        if delay is not None or at is not None:
            begun_s = time.monotonic()
            self._schedule.prepare(timeout)
            timeout = None if timeout is None else max(0.0, timeout - (time.monotonic() - begun_s))
        with self._sending(topic, value, raw_key, encoded) as encoded:
            if delay is None and at is None:
                return self._outbox.send(topic, value, key=raw_key, headers=encoded, timeout=timeout)
            place = self._schedule.place(topic, encoded, delay, at)
            return self._outbox.send(
                place.topic,
                value,
                key=raw_key,
                headers=place.headers,
                partition=place.partition,
                timeout=timeout,
            )

    async def send_async(
        self,
        topic: str,
        body: Any,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        transaction: Any = None,
        unique: str | None = None,
        for_: float | timedelta | None = None,
    ) -> Sent:
        """Like `send`, for coroutines on any event loop."""
        value, encoded, raw_key = self.encode(body, key, headers)
        if delay is not None or at is not None:
            begun_s = time.monotonic()
            await self._schedule.prepare_async(timeout=timeout)
            timeout = None if timeout is None else max(0.0, timeout - (time.monotonic() - begun_s))
        if transaction is not None or unique is not None or for_ is not None:
            with self._storing(topic, value, raw_key, encoded, delay, at) as record:
                steps = store_steps(record, topic, unique, for_, self.now_ms())
                return Stored.of(topic, await store_async(steps, transaction, self.database))
        with self._sending(topic, value, raw_key, encoded) as encoded:
            if delay is None and at is None:
                return await self._outbox.send_async(
                    topic, value, key=raw_key, headers=encoded, timeout=timeout
                )
            place = self._schedule.place(topic, encoded, delay, at)
            return await self._outbox.send_async(
                place.topic,
                value,
                key=raw_key,
                headers=place.headers,
                partition=place.partition,
                timeout=timeout,
            )

    def schedule(
        self,
        topic: str,
        body: Any,
        *,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
    ) -> Scheduled:
        """Like `send` with `delay` or `at`, but returns a `Scheduled`, which `cancel` takes."""
        value, encoded, raw_key = self.encode(body, key, headers)
        _warn_in_a_loop("schedule")
        self._schedule.prepare()
        with self._sending(topic, value, raw_key, encoded) as encoded:
            place = self._schedule.place(topic, encoded, delay, at)
            self._outbox.send(
                place.topic, value, key=raw_key, headers=place.headers, partition=place.partition
            )
        return replace(place.scheduled, key=raw_key, value=value, headers=encoded)

    async def schedule_async(
        self,
        topic: str,
        body: Any,
        *,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
    ) -> Scheduled:
        """Like `schedule`, for coroutines."""
        value, encoded, raw_key = self.encode(body, key, headers)
        await self._schedule.prepare_async()
        with self._sending(topic, value, raw_key, encoded) as encoded:
            place = self._schedule.place(topic, encoded, delay, at)
            await self._outbox.send_async(
                place.topic, value, key=raw_key, headers=place.headers, partition=place.partition
            )
        return replace(place.scheduled, key=raw_key, value=value, headers=encoded)

    def scheduled(self, most: int = 1_000) -> list[Scheduled]:
        """Returns the scheduled records of this group that are due next, at most `most` of them."""
        return self._schedule.upcoming(most)

    def cancel(self, scheduled: Scheduled | str) -> bool:
        """Cancels a scheduled record or ID. Returns False if it is already due, because it may have been sent.

        Raises QueueError if no record with this ID is scheduled. For an ID, all scheduled records are searched, which
        takes seconds for a million of them; for a `Scheduled`, none are.
        """
        if isinstance(scheduled, str):
            return self._schedule.cancel(scheduled)
        return self._schedule.cancel(scheduled.id, is_known=True)

    def every(
        self,
        when: str | timedelta | float,
        topic: str | None = None,
        *,
        timezone: tzinfo | str = UTC,
        **options: Any,
    ) -> Callable[[Callable[Concatenate[Firing, P], R]], Task[Firing, P, R]]:
        """Makes a function `(firing: Firing)` a periodic task, which is sent once per period for the whole group.

        `when` is a cron expression (minute, hour, day of month, month, day of week) in `timezone`, or an interval.
        `topic` defaults to GROUP.NAME, and is created; `options` are those of `task`.
        """
        schedule = schedule_of(when, timezone)

        def declare(function: Callable[Concatenate[Firing, P], R]) -> Task[Firing, P, R]:
            name = getattr(function, "__name__", "every")
            task = self.task(topic or f"{self.group_id}.{name}", batch=None, type=None, **options)(function)
            self._periodic.append(periodic_of(task.name, task.topic, schedule, self._content_type))
            return task

        return declare

    def send_many(
        self,
        topic: str,
        bodies: Iterable[Any],
        *,
        key: Callable[[Any], str | bytes | None] | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
    ) -> list[Sent]:
        """Sends a record for each body, in batches, and returns when the broker has stored all of them.

        `key` is called with each body, and `headers` are added to each record. Bodies are read as needed, so they can
        come from a generator. `delay` and `at` apply to all of them, as for `send`. If some are not acknowledged,
        raises SomeTasksNotSentError, whose `sent` has the others.
        """
        records = self._encode_many(topic, bodies, key, headers)
        _warn_in_a_loop("send_many")
        if delay is None and at is None:
            return self._outbox.send_many(topic, records)
        self._schedule.prepare()
        later = self._schedule.place_many(topic, records, delay, at)
        return self._outbox.send_many(later_topic(self.group_id), later)

    async def send_many_async(
        self,
        topic: str,
        bodies: Iterable[Any],
        *,
        key: Callable[[Any], str | bytes | None] | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
    ) -> list[Sent]:
        """Like `send_many`, for coroutines."""
        records = self._encode_many(topic, bodies, key, headers)
        if delay is None and at is None:
            return await self._outbox.send_many_async(topic, records)
        await self._schedule.prepare_async()
        later = self._schedule.place_many(topic, records, delay, at)
        return await self._outbox.send_many_async(later_topic(self.group_id), later)

    def run(self, *, on_started: Callable[[], None] | None = None) -> None:
        """Runs tasks until SIGTERM, SIGINT or `stop`, then drains. A second signal does not wait for functions."""
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(self._run_with_signals(on_started))

    async def run_async(self, *, on_started: Callable[[], None] | None = None) -> None:
        """Like `run`, on your event loop and without signal handlers. Call `stop` to end it.

        Coroutines of tasks run on your loop. The consumers run on a separate thread, so a coroutine that blocks the
        loop does not lose its locks.
        """
        if self._crew is not None:
            raise QueueError("the queue is running already")
        group_id = self.group_id
        if not self.tasks:
            raise QueueError("the queue has no tasks: declare some with @queue.task before it runs")
        background = BackgroundLoop("headrace-worker", self.make_loop)
        crew = self._crew = Crew(
            Orders(
                tasks=tuple(self.tasks.values()),
                group_id=group_id,
                given=self._given,
                outbox=self._outbox,
                start_from=self._start_from,
                drain_timeout=self._drain_timeout,
                schedule=self._schedule,
                periodic=tuple(self._periodic),
                hold_max=self._hold_max,
                user_loop=asyncio.get_running_loop(),
                user_thread=threading.get_ident(),
                database=self.database,
            ),
            background.loop,
        )
        try:
            async with lifespan_of(self.lifespan_function) as self.state:
                await run_on_thread(background, crew.run(on_started))
        finally:
            self._crew = self.state = None
            self._last_metrics = crew.metrics()
            await asyncio.to_thread(background.close)
            await asyncio.to_thread(self._outbox.close)
            await close_databases(databases_of(list(self.tasks.values()), self.database))

    async def relay_outbox(self, *, seconds: float | None = None) -> int:
        """Sends the records that `send(transaction=...)` stored in the database, as workers do, until it is canceled.

        With `seconds`, returns when the outbox is empty or after that time. Returns the number of records left.
        """
        if self.database is None:
            raise QueueError("the queue has no outbox: declare Queue(..., database=...)")
        database = WorkerDatabase(self.database, asyncio.get_running_loop())
        relay = OutboxRelay(database, self._outbox, self.group_id, self.now_ms)
        try:
            await database.create_tables()
            if seconds is not None:
                return await relay.drain(seconds)
            await relay.run()
            return 0
        finally:
            await close_databases([self.database])

    def stop(self, *, now: bool = False) -> None:
        """Ends `run` and `run_async`. Can be called on any thread. With `now`, does not wait for running functions."""
        crew = self._crew
        if crew is not None:
            with contextlib.suppress(RuntimeError):  # its loop has just ended
                crew.loop.call_soon_threadsafe(crew.stop, now)

    def metrics(self) -> dict[str, TaskMetrics]:
        """The metrics of each task, by its name. After a run, these are its last ones."""
        crew = self._crew
        return crew.metrics() if crew is not None else self._last_metrics

    def status(self) -> dict[str, Any]:
        """The queue's group and the topic, state, metrics and current runs of each task, ready for JSON."""
        topics = {task.name: task.topic for task in self.tasks.values()}
        crew = self._crew
        runs = crew.runs() if crew is not None else {}
        tasks = {
            name: {
                "topic": topics.get(name),
                "state": "paused" if numbers.paused else "running",
                **asdict(numbers),
                "runs_now": [asdict(run) for run in runs.get(name, ())],
            }
            for name, numbers in self.metrics().items()
        }
        return {"group": self._group_id, "tasks": tasks}

    def close(self) -> None:
        """Closes the queue's producer. A later `send` starts it again."""
        self._outbox.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        """Starts a worker on this event loop and waits until it is ready; raises the error if it cannot start.

        async with queue: ...      # in the lifespan of FastAPI and friends
        """
        started = asyncio.Event()
        self._running = running = asyncio.create_task(self.run_async(on_started=started.set))
        waiting = asyncio.create_task(started.wait())
        try:
            await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            running.cancel()  # nobody would leave the block, and stop it
            await asyncio.wait((running,))
            raise
        finally:
            waiting.cancel()
        if running.done():
            running.result()
        running.add_done_callback(_log_end)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running, self._running = self._running, None
        self.stop()
        if running is not None:
            await running

    async def _run_with_signals(self, on_started: Callable[[], None] | None) -> None:
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM)
        if threading.current_thread() is threading.main_thread():
            for number in signals:
                loop.add_signal_handler(number, self._signaled)
        self._was_signaled = False
        try:
            await self.run_async(on_started=on_started)
        finally:
            if threading.current_thread() is threading.main_thread():
                for number in signals:
                    loop.remove_signal_handler(number)

    def _signaled(self) -> None:
        self.stop(now=self._was_signaled)
        self._was_signaled = True

    @contextlib.contextmanager
    def _sending(
        self, topic: str, value: bytes | None, key: bytes | None, headers: tuple[Header, ...]
    ) -> Iterator[tuple[Header, ...]]:
        """With the middleware around it; yields the headers as they have made them."""
        if not self.middleware:
            yield headers
            return
        outgoing = OutgoingTask(topic, key, value, dict(headers), self._group_id)
        with sending(outgoing, self.middleware):
            yield tuple(outgoing.headers.items())

    @contextlib.contextmanager
    def _storing(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: tuple[Header, ...],
        delay: float | timedelta | None,
        at: datetime | None,
    ) -> Iterator[OutboxRecord]:
        """The record for the outbox, with an id, and with the middleware around its writing."""
        with self._sending(topic, value, key, headers) as own:
            own = with_message_id(own, new_message_id())
            if delay is None and at is None:
                yield OutboxRecord(self.group_id, topic, None, key, value, own)
                return
            self._schedule.prepare()
            place = self._schedule.place(topic, own, delay, at)
            yield OutboxRecord(self.group_id, place.topic, place.partition, key, value, place.headers)

    def _encode_many(
        self,
        topic: str,
        bodies: Iterable[Any],
        key: Callable[[Any], str | bytes | None] | None,
        headers: Mapping[str, str | bytes] | None,
    ) -> Iterator[ProducerRecord]:
        if isinstance(bodies, (str, bytes, Mapping)) or not isinstance(bodies, Iterable):
            raise TypeError(f"send_many takes several bodies, got {bodies!r}; for one body use send")
        if key is not None and not callable(key):
            raise TypeError(f"send_many: key must be a function of a body or None, got {key!r}")

        def each() -> Iterator[ProducerRecord]:
            for body in bodies:
                value, encoded, raw_key = self.encode(body, None if key is None else key(body), headers)
                with self._sending(topic, value, raw_key, encoded) as encoded:
                    pass  # the headers are all that it can do here
                yield ProducerRecord(value, raw_key, encoded)

        return each()

    def encode(
        self, body: Any, key: str | bytes | None, headers: Mapping[str, str | bytes] | None
    ) -> tuple[bytes | None, tuple[Header, ...], bytes | None]:
        given = {
            name: value.encode() if isinstance(value, str) else value
            for name, value in (headers or {}).items()
            if name != MESSAGE_ID  # of the record from which they were copied: this is another one
        }
        if body is None and key is None:
            raise TypeError("a record needs a body or a key: give one of them")
        value, own = write_body(body, self._content_type)
        encoded = (*given.items(), *(header for header in own if header[0] not in given))
        return value, encoded, key.encode() if isinstance(key, str) else key


def _log_end(running: "asyncio.Task[None]") -> None:
    """The program continues without its worker; the error is raised only at the end of its `async with`."""
    if not running.cancelled() and (error := running.exception()) is not None:
        logger.error("the worker has ended: %s", error, exc_info=error)


def _warn_in_a_loop(name: str) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    warnings.warn(
        f"{name} was called on a running event loop and blocks it until the broker responds; "
        f"use: await {name}_async(...)",
        RuntimeWarning,
        stacklevel=3,
    )


def _dotted(settings: Mapping[str, Any] | None) -> dict[str, Any]:
    """One spelling, so that a later setting replaces an earlier one."""
    return {name.replace("_", "."): value for name, value in (settings or {}).items()}
