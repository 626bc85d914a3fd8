"""`QueueTest`: runs a queue's tasks in your test, on a broker in the same process, with a clock that the test controls.

    def test_a_busy_server_is_tried_again():
        with QueueTest(queue) as test:
            test.send("emails", Email(to="ada@example.org"))
            test.run_until_idle()            # the first try has failed, the record waits out its back-off
            test.advance(60)                 # ... a minute later
            test.run_until_idle()
            assert sent == ["ada@example.org"]
            assert test.dead_letters("emails.dead") == []

The worker, the client, the protocol and the broker are the real ones. Only the clock is not: the worker's event loop
and the broker read clocks that are ahead of the system's by the same amount, and `advance` moves both. While records
are not settled, its steps are short enough for locks to be renewed as they are in production. Otherwise, each step
goes to the next moment at which something is due. `asyncio.sleep` in a task follows that clock; `time.sleep` in a
thread does not.
"""

import asyncio
import contextlib
import heapq
import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import wait as futures_wait
from contextvars import Context
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar, TypeVarTuple

from headrace.base.loops import new_event_loop
from headrace.broker.embedded import Broker
from headrace.client.admin import Admin
from headrace.share.states import RecordState
from headrace.wire.batches import read_header
from headrace.wire.errors import KafkaError
from headrace.wire.records import read_records
from headrace.worker import forwarder
from headrace.worker.crew import Crew
from headrace.worker.errors import QueueError
from headrace.worker.group_facts import RESET
from headrace.worker.jobs import Stage
from headrace.worker.later import later_topic
from headrace.worker.metrics import TaskMetrics
from headrace.worker.queue import Queue, Sent
from headrace.worker.runner import TaskRunner
from headrace.worker.task import Pool

T = TypeVar("T")
_Ts = TypeVarTuple("_Ts")
TURNS = 3
"""Of a loop, until a coroutine whose timer has ended has set its next one."""
TURNS_S = 1.0
DAY_MS = 86_400_000
LONGEST_MS = 2**31 - 1
IDLE_STEP_S = 3_600.0
"""The longest step: what answers to a step must have come before the next ones are over."""
START_S = 30.0
LOOK_S = 0.002
LOOK_AGAIN_S = 2 * forwarder.LOOK_S
OPEN = frozenset({RecordState.AVAILABLE, RecordState.ACQUIRED, RecordState.ARCHIVING})
LOCK = "group.share.record.lock.duration.ms"
# What would end by itself when the clock jumps, and has nothing to do with tasks.
BROKER_SETTINGS = {
    "connections.max.idle.ms": LONGEST_MS,
    "group.share.session.timeout.ms": LONGEST_MS,
    "group.share.max.session.timeout.ms": LONGEST_MS,
    "group.share.assignment.interval.ms": 0,
    "group.consumer.session.timeout.ms": LONGEST_MS,
    "group.consumer.max.session.timeout.ms": LONGEST_MS,
}
CLIENT_SETTINGS = {
    "request.timeout.ms": DAY_MS,
    "default.api.timeout.ms": DAY_MS,
    "metadata.max.age.ms": DAY_MS,
    "connections.max.idle.ms": -1,
    "fetch.max.wait.ms": 50,  # a stop waits for the fetch that the broker holds
}


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A record of a topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, str]
    """Decoded as UTF-8. If a name occurs more than once, this is its last value."""


_OpenRecords = Mapping[str, int | list[tuple[int, int]]]
"""How many are open, or of a task with strict order the bounds of its logs, of which its worker knows."""


class _WorkerEndedError(QueueError):
    """Its event loop is closed."""


class QueueTest:
    """A context manager that runs the queue on an in-memory broker, and restores the queue's settings at the end.

    `settings` are broker settings, such as `group.share.delivery.count.limit`. The topic of every task is created with
    `partitions` partitions.
    """

    def __init__(
        self, queue: Queue, *, settings: Mapping[str, Any] | None = None, partitions: int = 1
    ) -> None:
        self.queue = queue
        self._partitions = partitions
        self._settings = {**BROKER_SETTINGS, **(settings or {})}
        self._lock_s = float(self._settings.get(LOCK, 30_000)) / 1000
        self.broker = Broker(settings=self._settings)
        self._loop = _UserLoop()
        self._worker_loop: _TurnedLoop = self._loop
        """The loop of the worker's own thread, once it has one; tasks run on the other."""
        self._thread = threading.Thread(target=self._work, name="headrace-queue-test", daemon=True)
        self._started: Future[None] = Future()
        self._failure: BaseException | None = None
        self._wall_ms: Callable[[], int] | None = None
        self._moved_ms = 0
        """The time after the last step of the clock that was long enough for a look at what is due."""
        self._undo: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        self.broker.__enter__()  # it may have been started before, to set something up
        try:
            servers = self.broker.bootstrap_servers
            self._undo = self.queue.configure(bootstrap_servers=servers, settings=CLIENT_SETTINGS)
            self._create_topics()
            self.queue.make_loop = self._make_worker_loop
            wall_ms = self.queue.now_ms
            self.queue.now_ms = lambda: wall_ms() + round(self._loop.ahead_s * 1000)
            self._wall_ms = wall_ms
            self._thread.start()
            self._started.result(START_S)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread.is_alive():
            self.queue.stop(now=True)
            self._thread.join(START_S)
        self.queue.close()
        self.queue.make_loop = new_event_loop
        if self._wall_ms is not None:
            self.queue.now_ms = self._wall_ms
        self._undo()
        self.broker.stop()

    def send(
        self,
        topic: str,
        body: Any,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
    ) -> Sent:
        """Sends a record, as `Queue.send` does."""
        return self.queue.send(topic, body, key=key, headers=headers)

    def run_until_idle(self, timeout: float = 10.0) -> None:
        """Waits until there is nothing to do before the clock moves: all records are acknowledged or wait for a retry.

        Raises TimeoutError after `timeout` seconds of real time. Its message says what is still running.
        """
        deadline = time.monotonic() + timeout
        while (busy := self._busy()) is not None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the queue is not idle after {timeout:g} s: {busy}")
            time.sleep(LOOK_S)

    def advance(self, seconds: float) -> None:
        """Moves the clocks of broker and worker forward. Due retries start; `run_until_idle` waits for them."""
        self._follow()  # what has begun has its timers set by the old time
        while seconds > 0:
            step = min(self._step_s(), seconds)
            seconds -= step
            self._move(step)
            self._follow()

    def _move(self, seconds: float) -> None:
        """All clocks, while the worker's loop stands still: for a fetch that it sent in between, the locks of the
        records in the response would have begun before the step. Tasks are not waited for; they may block theirs."""
        moved: list[bool] = []

        def move() -> None:
            moved.append(True)
            self.broker.advance(seconds)
            for loop in {self._loop, self._worker_loop}:
                loop.move(seconds)
            if seconds >= LOOK_AGAIN_S:  # the forwarder has woken up
                self._moved_ms = self.queue.now_ms()

        if self._worker_loop is not self._loop:
            with contextlib.suppress(_WorkerEndedError):
                self._on_loop(move)
        if not moved:
            move()

    def _step_s(self) -> float:
        """To the next moment at which something is due, but never more steps than renewals need."""
        least = self._lock_s / 6
        try:
            open_records = self._open_records()
            if self._on_loop(lambda: self._has_work(open_records)) or not self._loop.has_turned(TURNS_S):
                return least
            return self._on_loop(lambda: self._until_due_s(least))
        except _WorkerEndedError:
            return least

    def _has_work(self, open_records: _OpenRecords) -> bool:
        crew = self.queue.crew
        return crew is None or any(
            runner.scheduler.lanes.held
            or runner.scheduler.slots.taken
            or runner.records.unconfirmed
            or self._open_of(runner, open_records[runner.task.topic])
            for runner in crew.runners
        )

    def _until_due_s(self, least: float) -> float:
        """Until something is sent that was scheduled, or a timer of the user's loop ends."""
        crew = self.queue.crew
        moments = [IDLE_STEP_S]
        if crew is not None and crew.forwarder.next_ms:
            moments.append((crew.forwarder.next_ms - self.queue.now_ms()) / 1000)
        if (timer_s := self._loop.next_timer_s()) is not None:
            moments.append(timer_s - self._loop.time())
        return max(least, min(moments))

    def _follow(self) -> None:
        """Waits until the worker has done what a step of the clock makes due, or has ended after a `stop`."""
        try:
            self._on_loop(_nothing)
            self._wait_for_forwarder()
            self._wait_for_renewals()
        except _WorkerEndedError:
            if self._failure is not None:
                raise

    def _wait_for_forwarder(self) -> None:
        """What is due by the clock has been moved."""
        deadline = time.monotonic() + START_S
        while self._is_forwarding() and time.monotonic() < deadline:
            time.sleep(LOOK_S)

    def _is_forwarding(self) -> bool:
        ends = [end for _, end in self.broker.call(partial(self._bounds, later_topic(self.queue.group_id)))]
        crew = self.queue.crew
        if not ends or crew is None:
            return False
        found, moved_ms = crew.forwarder, self._moved_ms
        return not self._on_loop(lambda: found.is_settled(ends) and found.has_looked(moved_ms))

    def records(self, topic: str) -> list[TopicRecord]:
        """All records of a topic, by partition and offset."""
        return self.broker.call(partial(self._read, topic))

    def dead_letters(self, topic: str) -> list[TopicRecord]:
        """The records of a dead-letter topic; [] if the topic does not exist."""
        return self.records(topic)

    def metrics(self) -> dict[str, TaskMetrics]:
        """The metrics of each task, by its name."""
        return self.queue.metrics()

    def _read(self, name: str) -> list[TopicRecord]:
        topic = self.broker.core.topics.get(name)
        return [
            TopicRecord(
                partition.index,
                record.offset,
                record.key,
                record.value,
                {key: (value or b"").decode("utf-8", "replace") for key, value in record.headers},
            )
            for partition in (topic.partitions if topic is not None else ())
            for batch in partition.log.reader.batches()
            if not read_header(batch).is_control
            for record in read_records(batch)
        ]

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(
                self.queue.run_async(on_started=lambda: self._started.set_result(None))
            )
        except BaseException as error:
            self._failure = error
            if not self._started.done():
                self._started.set_exception(error)
        finally:
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def _make_worker_loop(self) -> "_TurnedLoop":
        self._worker_loop = _TurnedLoop(self._loop.ahead_s)
        return self._worker_loop

    def _create_topics(self) -> None:
        """And whatever the queue's `start_from` is, what the test sends is found: no race with the first fetch."""
        with Admin(bootstrap_servers=self.broker.bootstrap_servers) as admin:
            admin.set_group_config(self.queue.group_id, {RESET: "earliest"})
        create = self.broker.core.topics.create
        for name in sorted(self.queue.tasks):
            self.broker.call(partial(create, name, partitions=self._partitions, configs={}))

    def _on_loop(self, function: Callable[[], T]) -> T:
        result: Future[T] = Future()

        def run() -> None:
            try:
                result.set_result(function())
            except BaseException as error:
                result.set_exception(error)

        loop = self._worker_loop
        with contextlib.suppress(RuntimeError):  # it is closed
            loop.call_soon_threadsafe(run)
        deadline = time.monotonic() + START_S
        while not result.done() and not loop.is_closed() and time.monotonic() < deadline:
            futures_wait([result], timeout=LOOK_S)
        if loop.is_closed() and not result.done():  # a loop that stops drops the calls it has not begun
            raise _WorkerEndedError(f"the worker has ended: {self._failure}") from self._failure
        return result.result(0)

    def _busy(self) -> str | None:
        """What is going on, or None. The broker is asked first: what it settles later the worker no longer holds."""
        if self._failure is not None or not self._thread.is_alive():
            raise QueueError(f"the worker has ended: {self._failure}") from self._failure
        if self._is_forwarding():
            return "scheduled records are due"
        open_records = self._open_records()
        return self._on_loop(lambda: self._busy_with(open_records))

    def _open_records(self) -> _OpenRecords:
        """By topic."""
        return {
            topic: self.broker.call(partial(self._bounds, topic))
            if task.options.is_strict
            else self._open_in(topic)
            for topic, task in self.queue.tasks.items()
        }

    def _busy_with(self, open_records: _OpenRecords) -> str | None:
        crew: Crew | None = self.queue.crew
        if crew is None:
            return "the worker is stopping"
        notes = (
            _note(runner, self._open_of(runner, open_records[runner.task.topic]), self._worker_loop.time())
            for runner in crew.runners
        )
        return next((note for note in notes if note is not None), None)

    def _open_of(self, runner: TaskRunner, known: int | list[tuple[int, int]]) -> int:
        """The number, or with strict order what the worker makes of the logs' starts and ends."""
        if isinstance(known, int):
            return known
        assert runner.strict is not None
        return runner.strict.open_records(known)

    def _open_in(self, name: str) -> int:
        """Records of a topic that the group has still to do with."""
        try:
            states = self.broker.share_state(self.queue.group_id)
        except KafkaError:  # no worker has joined yet
            states = {}
        count = 0
        for partition, (start_offset, end_offset) in enumerate(self.broker.call(partial(self._bounds, name))):
            state = states.get((name, partition))
            if state is None or state.next_offset is None:
                count += end_offset - start_offset
            else:
                count += end_offset - state.next_offset
                count += sum(run.count for run in state.runs if run.state in OPEN)
        return count

    def _bounds(self, name: str) -> list[tuple[int, int]]:
        topic = self.broker.core.topics.get(name)
        logs = [partition.log for partition in topic.partitions] if topic is not None else []
        return [(log.start_offset, log.end_offset) for log in logs]

    def _wait_for_renewals(self) -> None:
        """A step is over when no lock is short of time: the worker renews each when half of it has passed."""
        deadline = time.monotonic() + START_S
        while self._least_lock_s() < self._lock_s / 3:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    "the worker does not renew its locks; is its event loop blocked by a task?"
                )
            time.sleep(LOOK_S)

    def _least_lock_s(self) -> float:
        """By the broker's clock, or by the worker's view, which has a renewal a moment later."""
        left = [self._on_loop(self._least_known_lock_s)]
        with contextlib.suppress(KafkaError):
            for state in self.broker.share_state(self.queue.group_id).values():
                left += [run.lock_ms_left / 1000 for run in state.runs if run.lock_ms_left is not None]
        return min(left)

    def _least_known_lock_s(self) -> float:
        crew = self.queue.crew
        ends = [
            end
            for runner in (crew.runners if crew is not None else ())
            for end in runner.records.lock_deadlines()
        ]
        return min(ends, default=math.inf) - time.time() - self._worker_loop.ahead_s


class _TurnedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time runs ahead of the system's."""

    def __init__(self, ahead_s: float = 0.0) -> None:
        super().__init__()
        self.ahead_s = ahead_s

    def time(self) -> float:
        return super().time() + self.ahead_s

    def move(self, seconds: float) -> None:
        """From any thread; a loop that was closed meanwhile has nothing to wake."""
        self.ahead_s += seconds
        with contextlib.suppress(RuntimeError):
            self.call_soon_threadsafe(_nothing)


class _UserLoop(_TurnedLoop):
    """The one that tasks run on: it also knows when its next timer ends."""

    def __init__(self) -> None:
        super().__init__()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_count = 0
        self._lock = threading.Lock()

    def call_at(
        self, when: float, callback: Callable[[*_Ts], object], *args: *_Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        with self._lock:
            self._timer_count += 1
            heapq.heappush(self._timers, (when, self._timer_count, handle))
        return handle

    def next_timer_s(self) -> float | None:
        """When the first of its timers ends that has not ended. From any thread."""
        with self._lock:
            while self._timers and (self._timers[0][0] <= self.time() or self._timers[0][2].cancelled()):
                heapq.heappop(self._timers)
            return self._timers[0][0] if self._timers else None

    def has_turned(self, seconds: float) -> bool:
        """Waits until what its timers have made due has run, and set timers of its own. False if that takes longer."""
        result: Future[None] = Future()

        def turn(left: int) -> None:
            if left:
                self.call_soon(turn, left - 1)
            else:
                result.set_result(None)

        try:
            self.call_soon_threadsafe(turn, TURNS)
        except RuntimeError:  # it is closed
            return False
        return bool(futures_wait([result], timeout=seconds).done)


def _nothing() -> None:
    pass


def _note(runner: TaskRunner, open_records: int, now_s: float) -> str | None:
    scheduler = runner.scheduler
    name, counts, calls = runner.task.name, scheduler.lanes.counts, scheduler.slots.taken
    if counts[Stage.RUNNING]:
        return f"{name} runs {counts[Stage.RUNNING]} records"
    if calls and runner.task.options.pool is not Pool.THREAD:  # a thread cannot be stopped
        return f"{name} still runs {calls} calls for records whose locks have ended"
    if counts[Stage.GIVING_UP]:
        return f"{name} writes {counts[Stage.GIVING_UP]} dead letters"
    deadline_ms = scheduler.deadline_ms()
    if scheduler.has_ready or (deadline_ms is not None and deadline_ms <= now_s * 1000):
        return f"{name} has records to start"
    if runner.records.unconfirmed:
        return f"{name} waits for {runner.records.unconfirmed} acknowledgements"
    if open_records != scheduler.lanes.held and scheduler.room():
        return f"{name} has {open_records} records to settle, of which it holds {scheduler.lanes.held}"
    return None
