"""`ShareConsumer` under stress: real threads, real sockets, a broker in this process, and signals at any moment.

The simulation of the whole path has one thread, so it drives `AsyncShareConsumer`. The face without asyncio is a
background thread and the application's, and what may go wrong in it lies between any two instructions of either: that
cannot be simulated, only tried. A seed decides what the application does and when it is disturbed, but not how threads
take turns. The promises are those of `model.py`, except for those about time: a thread may stand still between what it
does and what the model sees.

`python -m tests.simulation.path.threads --seeds 20 --first 1` runs so many lives.
"""

import argparse
import linecache
import signal
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from types import FrameType, SimpleNamespace
from typing import Any

from headrace import Admin, Broker, Producer, ShareConsumer
from headrace.broker.share.loaded import LoadedPartition
from headrace.client.batches import DeliveryBatch
from headrace.client.core.ranges import AcquiredRange
from headrace.client.delivery import Delivery
from headrace.client.errors import ConcurrentModificationError, IllegalStateError, WakeupError
from headrace.share.changes import Acquisition as EngineAcquisition
from headrace.share.changes import AnyChange, Change
from headrace.share.partition import SharePartition
from headrace.share.states import Cause
from headrace.wire.errors import KafkaError
from headrace.wire.share_state import ShareKey
from tests.simulation import share_watching
from tests.simulation.path.model import (
    ACCEPT,
    BY_ITSELF,
    EFFECTS,
    REJECT,
    RELEASE,
    Acquisition,
    Path,
)
from tests.simulation.violation import Violation

TOPIC, GROUP = "stress", "stress"
RECORDS = 3_000
BATCH = 15
CALLS = 80
LOCK_MS = 1_500
SESSION_MS = 10_000
"""A consumer that is closed without time to leave its group keeps its partition until its session ends."""
ENDS = (Cause.EXHAUST, Cause.EXHAUST_TO_DEAD_LETTERS)
DRAIN_POLLS = 600
"""So many polls of a tenth of a second at most are made for what is left in the end."""
LINES_MAX = 300
CLIENT = "headrace/client"
LAST_STEPS = ("poll", "_batches", "__iter__")
"""Functions whose last statement makes records seen: what is raised after that is the application's to deal with."""


class Alarm(Exception):
    """Raised by a signal handler."""


class Watched(share_watching.ShareWatcher):
    """What the broker's engine does, on the broker's thread."""

    def __init__(self, stress: "Stress") -> None:
        self.stress = stress
        self.keys: dict[int, ShareKey] = {}
        self.held: dict[tuple[ShareKey, int], Acquisition] = {}
        self.last: dict[tuple[str, ShareKey, int], Acquisition] = {}
        self.ended: set[tuple[int, int]] = set()
        """Partition and offset of what will not be delivered again."""

    def loaded(self, loaded: LoadedPartition) -> None:
        self.keys[id(loaded.engine)] = loaded.key
        self.stress.kept.append(loaded.engine)

    def acquired(self, engine: SharePartition, given: dict[str, Any], acquisition: EngineAcquisition) -> None:
        key, member = self.keys[id(engine)], given["member"]
        for one in acquisition.acquired:
            for offset in range(one.first, one.last + 1):
                made = Acquisition(len(self.stress.kept), key, TOPIC, offset, member, one.delivery_count)
                self.stress.kept.append(made)
                self.held[key, offset] = self.last[member, key, offset] = made
                if (key.partition, offset) in self.ended:
                    self.stress.report(Violation("path: delivered after its end", f"{made!r}"))

    def applying(self, engine: SharePartition, changes: Sequence[AnyChange]) -> None:
        key = self.keys[id(engine)]
        for change in changes:
            if not isinstance(change, Change):
                continue
            effect = EFFECTS.get(change.cause)
            for offset in range(change.first, change.last + 1):
                one = self.held.get((key, offset))
                if one is None:
                    continue
                if effect is not None:
                    self.stress.guard(self.stress.path.took, one, effect)
                elif change.cause in BY_ITSELF:
                    one.is_ended = True
                if effect in (ACCEPT, REJECT) or change.cause in ENDS:
                    self.ended.add((key.partition, offset))


class StressPath(Path):
    """The same promises; what a client holds is found by what the engine has acquired last for it."""

    def __init__(self, stress: "Stress") -> None:
        super().__init__(stress)  # type: ignore[arg-type]
        self.stress = stress

    def _check_gap(self, one: Acquisition) -> None:
        raise Violation("path: a record reported as a gap", f"{one!r}")

    def _is_there(self, one: Acquisition) -> bool:
        return self.stress.share.held.get((one.key, one.offset)) is one

    def find(self, acquired: AcquiredRange, member: str) -> None:
        """A range has arrived at a client."""
        key = ShareKey(GROUP, acquired.topic_id, acquired.partition)
        ones = [
            self.stress.share.last[member, key, offset] for offset in range(acquired.first, acquired.last + 1)
        ]
        for one in ones:
            one.acquired = acquired
        self.ranges[id(acquired)] = acquired, ones

    def is_told(self, ones: Sequence[Acquisition]) -> None:
        """A consumer is closed."""
        for one in ones:
            if one.is_answered and not one.settled:
                raise Violation("path: never told", f"{one!r}")


class Stress:
    """One life: an application that polls, and is disturbed."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.stats = SimpleNamespace(events=Counter[str]())
        self.scenario = SimpleNamespace(has_faults=True)
        self.kept: list[Any] = []
        """What must not be collected: others are known by their ids."""
        self.violation: Violation | None = None
        self.path = StressPath(self)
        self.share = Watched(self)
        self.ones: dict[Acquisition, Any] = {}
        self.consumer: ShareConsumer | None = None
        self.disturb: Callable[[], None] | None = None

    def report(self, violation: Violation) -> None:
        if self.violation is None:
            self.violation = violation

    def guard(self, check: Callable[..., Any], *given: Any) -> None:
        try:
            check(*given)
        except Violation as violation:
            self.report(violation)

    def run(self) -> None:
        share_watching.watch(self.share)
        settings = {
            "group.share.record.lock.duration.ms": LOCK_MS,
            "group.share.min.record.lock.duration.ms": LOCK_MS,
            "group.share.delivery.count.limit": 10,
            "group.share.session.timeout.ms": SESSION_MS,
            "group.share.min.session.timeout.ms": SESSION_MS,
            "group.share.heartbeat.interval.ms": SESSION_MS // 5,
            "group.share.min.heartbeat.interval.ms": SESSION_MS // 5,
            "num.partitions": 2,
        }
        with Broker(settings=settings) as broker:
            self.servers = broker.bootstrap_servers
            with Admin(bootstrap_servers=self.servers) as admin:
                admin.set_group_config(GROUP, {"share.auto.offset.reset": "earliest"})
            with Producer(bootstrap_servers=self.servers) as producer:
                for _ in range(RECORDS // BATCH):
                    producer.send_many(TOPIC, [b"%d" % number for number in range(BATCH)])
            self.live()
            self.drain()
            if self.violation is not None:
                raise self.violation

    # The application

    def live(self) -> None:
        previous = signal.signal(signal.SIGALRM, self.on_signal)
        left = CALLS
        try:
            while left > 0 and self.violation is None:
                kind = self.rng.choice((self.explicit, self.implicit, self.rows, self.held))
                left -= self.use(kind, self.rng.randint(1, left))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, previous)

    def use(self, kind: Callable[[], None], calls: int) -> int:
        """One consumer, for so many calls or until somebody closes it."""
        self.ones = {}
        is_implicit, is_held = kind == self.implicit, kind == self.held
        self.consumer = consumer = self.connect(
            share_acknowledgement_mode="implicit" if is_implicit else "explicit",
            max_poll_records=self.rng.choice((1, 10, 200)),
            auto_renew=not is_implicit and self.rng.random() < 0.5,
            **({"max_unacknowledged": self.rng.choice((5, 100))} if is_held else {}),
        )
        made = 0
        try:
            for _ in range(calls):
                made += 1
                kind()
                if self.violation is not None:
                    break
        except KafkaError:
            raise Violation("path: a poll fails", traceback.format_exc()) from None
        except IllegalStateError:
            if consumer._closing is None:
                raise Violation("path: a poll refuses", traceback.format_exc()) from None
        self.calm()
        for one in self.ones:
            one.is_given_back = True
        consumer.close()
        if not consumer._is_closed:
            raise Violation("path: a close does nothing", f"{vars(consumer)}")
        self.guard(self.path.is_told, list(self.ones))
        return made

    def connect(self, **settings: Any) -> ShareConsumer:
        consumer = ShareConsumer(bootstrap_servers=self.servers, group_id=GROUP, **settings)
        member, consumption, core = consumer._member, consumer._consumption, consumer._member.core
        self.path.members.add(member.member_id)
        respond = core.responded

        def responded(node_id: int, response: Any, *, now_ms: int) -> None:
            respond(node_id, response, now_ms=now_ms)
            for acquired in list(core._holdings.lanes[node_id].acquired()):
                if id(acquired) not in self.path.ranges:
                    self.path.find(acquired, member.member_id)

        def settled(answers: Any) -> None:
            self.guard(self.path.settled, answers)
            consumption.settled(answers)

        def lost(losses: Any) -> None:
            self.guard(self.path.lost, losses)
            consumption.lost(losses)

        core.responded = responded  # type: ignore[method-assign]
        member.listen(settled, lost)
        consumer.subscribe([TOPIC])
        return consumer

    def explicit(self) -> None:
        for delivery in self.polled():
            self.answer(delivery, self.rng.choice((ACCEPT, ACCEPT, ACCEPT, RELEASE, REJECT)))
        self.commit()

    def implicit(self) -> None:
        self.allow_accepting()
        self.polled()
        self.allow_accepting()
        self.commit()

    def allow_accepting(self) -> None:
        """The next poll or commit accepts what has no answer."""
        for one in self.ones:
            if not one.allowed:
                one.allowed.append(ACCEPT)

    def rows(self) -> None:
        assert self.consumer is not None
        batch: DeliveryBatch | None = None
        with self.disturbed():
            batch = next(self.consumer.batches(timeout=0.1), None)
        if batch is None:
            return
        ones = self.path.of_batch(batch)
        self.returned(ones)
        if len(ones) != len(batch):
            raise Violation("path: rows of other records", f"{len(ones)} for {len(batch)} rows")
        mask = [self.rng.random() < 0.5 for _ in ones]
        for type, part in ((RELEASE, mask), (ACCEPT, [not each for each in mask])):
            for one, is_meant in zip(ones, part, strict=True):
                if is_meant:
                    one.allowed.append(type)
            (batch.release if type == RELEASE else batch.accept)(part)
            for one, is_meant in zip(ones, part, strict=True):
                one.is_answered = one.is_answered or is_meant
        self.commit()

    def held(self) -> None:
        """Another thread answers, while this one polls on."""
        deliveries = self.polled()

        def answer() -> None:
            for delivery in deliveries:
                with suppress(IllegalStateError):  # somebody has closed the consumer
                    self.answer(delivery, ACCEPT)

        thread = threading.Thread(target=answer)
        thread.start()
        more = self.polled()
        thread.join()
        for delivery in more:
            self.answer(delivery, ACCEPT)

    def polled(self) -> Sequence[Delivery]:
        assert self.consumer is not None
        found: list[Delivery] = []
        with self.disturbed():
            found = self.consumer.poll(self.rng.choice((0, 0.02, 0.1)))
        self.returned([self.path.of_delivery(one) for one in found])
        return found

    def returned(self, ones: Sequence[Acquisition]) -> None:
        for one in ones:
            one.is_returned = True
            self.ones[one] = None

    def answer(self, delivery: Delivery, type: int) -> None:
        one = self.path.of_delivery(delivery)
        one.allowed.append(type)
        {ACCEPT: delivery.accept, RELEASE: delivery.release, REJECT: delivery.reject}[type]()
        one.is_answered = True

    def commit(self) -> None:
        assert self.consumer is not None
        if self.rng.random() < 0.3:
            with self.disturbed():
                self.consumer.commit_sync(self.rng.choice((0, 0.1, 5)))

    # Disturbances

    def disturbed(self) -> "Disturbed":
        """Around a call: a signal handler raises, wakes or closes in the middle of it, or another thread does."""
        return Disturbed(self)

    def calm(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        self.disturb = None

    def on_signal(self, _: int, frame: FrameType | None) -> None:
        disturb, self.disturb = self.disturb, None
        if disturb is None:
            return
        while frame is not None and CLIENT not in frame.f_code.co_filename:
            frame = frame.f_back
        if frame is None or frame.f_code.co_name in LAST_STEPS:
            return
        self.stats.events["disturbed by a signal"] += 1
        disturb()

    def raise_one(self) -> None:
        raise self.rng.choice((Alarm, TimeoutError, KeyboardInterrupt))("out of a signal handler")

    def close(self) -> None:
        assert self.consumer is not None
        for one in list(self.ones):
            one.is_given_back = True
        with suppress(ConcurrentModificationError):  # another thread's call is never cut short
            self.consumer.close(self.rng.choice((0, 5)))

    # The end

    def drain(self) -> None:
        """What is left is delivered to a consumer that nobody disturbs."""
        self.ones = {}
        with self.connect() as consumer:
            for _ in range(DRAIN_POLLS):
                if len(self.share.ended) >= RECORDS or self.violation is not None:
                    return
                self.allow_accepting()
                self.returned([self.path.of_delivery(one) for one in consumer.poll(0.1)])
        raise Violation("path: records are left over", f"{RECORDS - len(self.share.ended)} of {RECORDS}")


class Disturbed:
    def __init__(self, stress: Stress) -> None:
        self.stress = stress
        self.thread: threading.Timer | None = None

    def __enter__(self) -> None:
        stress, rng = self.stress, self.stress.rng
        after_s = rng.choice((0.0002, 0.001, 0.004, 0.02, 0.1)) * rng.uniform(0.1, 1)
        kinds = "no", "raise", "raise at a line", "wakeup", "close", "thread wakes", "thread closes"
        match rng.choices(kinds, (3, 4, 8, 2, 1, 2, 1))[0]:
            case "raise":
                self.by_signal(stress.raise_one, after_s)
            case "raise at a line":
                self.at_a_line(stress.raise_one, rng.randrange(LINES_MAX))
            case "wakeup":
                assert stress.consumer is not None
                self.by_signal(stress.consumer.wakeup, after_s)
            case "close":
                self.by_signal(stress.close, after_s)
            case "thread wakes":
                assert stress.consumer is not None
                self.by_thread(stress.consumer.wakeup, after_s)
            case "thread closes":
                self.by_thread(stress.close, after_s)

    def by_signal(self, disturb: Callable[[], None], after_s: float) -> None:
        self.stress.disturb = disturb
        signal.setitimer(signal.ITIMER_REAL, after_s)

    def at_a_line(self, disturb: Callable[[], None], left: int) -> None:
        """The same after so many lines of the client: most signals meet a call that waits."""

        def trace(frame: FrameType, event: str, _: Any) -> Any:
            nonlocal left
            if CLIENT not in frame.f_code.co_filename:
                return None
            if event == "line" and not _is_with(frame):
                left -= 1
                if left < 0 and frame.f_code.co_name not in LAST_STEPS:
                    sys.settrace(None)
                    self.stress.stats.events["disturbed at a line"] += 1
                    disturb()
            return trace

        sys.settrace(trace)

    def by_thread(self, disturb: Callable[[], None], after_s: float) -> None:
        self.thread = threading.Timer(after_s, disturb)
        self.thread.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> bool:
        sys.settrace(None)
        self.stress.calm()
        if self.thread is not None:
            self.thread.cancel()
            self.thread.join()
        if isinstance(error, ConcurrentModificationError):
            return self.thread is not None  # which was about to close it
        return isinstance(error, (Alarm, TimeoutError, KeyboardInterrupt, WakeupError))


def _is_with(frame: FrameType) -> bool:
    """No signal handler runs between the end of a `with` and the release of its lock. A tracer does."""
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with ")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.path.threads")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=1)
    given = parser.parse_args()
    failed = 0
    events: Counter[str] = Counter()
    for seed in range(given.first, given.first + given.seeds):
        stress = Stress(seed)
        try:
            stress.run()
        except Violation as violation:
            failed += 1
            print(f"seed {seed}: {violation.what}: {violation.detail}", flush=True)
        events += stress.stats.events
    print(f"{given.seeds} lives, violations: {failed}; {dict(events)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
