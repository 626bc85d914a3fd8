"""One simulated life: a machine, the broker on it, the clients around it, the models that judge, all driven by one
seed.

A life is a list of steps. What a step does follows from the seed, its number and the state the world is in, so
any subset of the steps is a life too: that is how a failure is shrunk.
"""

import traceback
from collections import Counter
from collections.abc import Callable, Collection
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from headrace.broker.core import BrokerCore
from headrace.broker.features import SHARE
from headrace.broker.security.listeners import plain_listener
from headrace.broker.server import Server
from headrace.broker.settings import Settings
from headrace.log.disk import PowerLost
from headrace.log.partition_log import Appended, PartitionLog
from headrace.wire.errors import KafkaError
from tests.simulation import environment, turns
from tests.simulation.actor import Actor
from tests.simulation.clock import SimulatedClock
from tests.simulation.disk import SimulatedDisk
from tests.simulation.event_loop import SimulatedLoop
from tests.simulation.metadata import MetadataDisk
from tests.simulation.model import End, Model
from tests.simulation.models.logs import Entry, LogModel
from tests.simulation.network import Link
from tests.simulation.registry import ACTORS, MODELS, STEPS, Scenario, scenario
from tests.simulation.scenario import GUARDED_FROM, WIDE_FROM, guarded, widened
from tests.simulation.tasks import TASKS
from tests.simulation.trail import Trail
from tests.simulation.violation import Violation

M = TypeVar("M", bound=Model)
SLACK_MS = 15_000
"""Beyond its own timeout, a request may wait so long for its turn."""
REST_MS = 2_000
"""What was refused by a full disk is tried again within this time."""
ROUNDS_MAX = 10_000


class Stats:
    def __init__(self) -> None:
        self.steps = 0
        self.turns = 0
        self.requests: Counter[int] = Counter()
        self.restarts: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        """What else happened, where it is worth a number."""
        self.loop_waits = 0
        self.syncs_max = self.operations_max = self.reads_max = 0

    def add(self, other: "Stats") -> None:
        self.steps += other.steps
        self.turns += other.turns
        self.requests += other.requests
        self.restarts += other.restarts
        self.faults += other.faults
        self.events += other.events
        self.loop_waits += other.loop_waits
        self.syncs_max = max(self.syncs_max, other.syncs_max)
        self.operations_max = max(self.operations_max, other.operations_max)
        self.reads_max = max(self.reads_max, other.reads_max)


class World(environment.AppendWatcher):
    actor_table = ACTORS
    model_table = MODELS
    step_table = STEPS

    def __init__(self, seed: int, *, is_recorded: bool = False) -> None:
        environment.install()
        self.seed = seed
        self.rng = Random(seed)
        self.trail = Trail(is_recorded=is_recorded)
        self.stats = Stats()
        self.clock = SimulatedClock()
        self.turns = turns.Turns()
        self.disk = SimulatedDisk(self.trail, self.turns)
        self.metadata_disk = MetadataDisk()
        environment.begin(seed, self.disk, self.metadata_disk, self)
        self.scenario = self.make_scenario(self.rng)
        environment.journal_segment_bytes = self.scenario.journal_segment_bytes
        self.loop = SimulatedLoop(self.clock)
        self.links: list[Link] = []
        self._link_numbers = 0
        self.crash_kind = End.KILL
        """What the next crash is, when a disk operation brings it."""
        self.is_power_lost_at_marker = False
        """Power will be lost after the next marker of a transaction, or the next dead letter."""
        self.failure: Exception | None = None
        """Why the broker wants to stop."""
        self.is_starting = False
        self.is_calm = False
        self.has_crashed = False
        """A disk operation has ended the process: nothing more happens in it."""
        self.was_damaged = False
        """A bit has flipped: from now on only detection is demanded of what it may have hit."""
        self.models: list[Model] = [make(self) for make in self.model_table.values()]
        self._start_process()
        for model in self.models:
            model.after_start(End.CLEAN)
        self.actors: list[Actor] = [
            make(self, f"{name}{number}")
            for name, (make, least, most) in self.actor_table.items()
            for number in range(self.rng.randint(*self.scenario.crowd.get(name, (least, most))))
        ]

    def model(self, kind: type[M]) -> M:
        return next(model for model in self.models if isinstance(model, kind))

    def make_scenario(self, rng: Random) -> Scenario:
        made = scenario(rng)
        if WIDE_FROM <= self.seed < GUARDED_FROM:
            return widened(made, rng)
        return guarded(made) if self.seed >= GUARDED_FROM else made

    # Steps

    def run(self, steps: int, kept: Collection[int] | None = None) -> None:
        """Raises Violation. `kept`: only these of the steps."""
        turns.watch()
        try:
            for number in range(steps) if kept is None else sorted(kept):
                self.step(number)
            self.rng = Random(self.seed * 1_000_003 + steps)
            self.trail.note("the end")
            self.rest()
            self._end_if_needed()
            self.is_calm = True
            self.disk.stop_failing()
            for model in self.models:
                model.at_end()
            self._end_if_needed()
            self.end(End.CLEAN)
        finally:
            turns.unwatch()
            self.stats.turns = self.turns.count
            self.stats.loop_waits = TASKS.loop_waits
            self.stats.operations_max = self.turns.operations_max
            self.stats.reads_max = self.turns.reads_max
            self.stats.syncs_max = self.turns.syncs_max
            TASKS.kill()

    def step(self, number: int) -> None:
        self.stats.steps += 1
        self.rng = Random(self.seed * 1_000_003 + number)
        weights = self.scenario.step_weights
        kind = self.rng.choices(self.scenario.step_names, cum_weights=weights)[0]
        self.trail.note(f"step {number} {kind}")
        self.step_table[kind].take(self)
        self._go_on()
        self._end_if_needed()
        for model in self.models:
            model.after_step()

    def _end_if_needed(self) -> None:
        if self.has_crashed:
            self.end(self.crash_kind)
        elif self.failure is not None:
            self.end(End.FAILED)

    def _go_on(self) -> None:
        """What happens by itself after a step: callbacks that are ready, and workers that get on."""
        if self.rng.random() < 0.9:
            self.run_ready()
        self.run_tasks(self.rng.choice((0, 0, 1, 2, 5, 20)))
        if self.rng.random() < 0.9:
            self.run_ready()

    def damage(self, topic: str, partition: int) -> None:
        """A bit of this partition's files has flipped."""
        self.was_damaged = True
        for model in self.models:
            model.damage(topic, partition)

    # The loop and its tasks

    def turn(self, callback: Callable[..., Any], *arguments: Any) -> None:
        if self.has_crashed:
            return
        self.turns.begin()
        waits = TASKS.loop_waits
        try:
            callback(*arguments)
        except PowerLost:
            self.has_crashed = True
            return
        finally:
            self.turns.end()
        if TASKS.loop_waits > waits:
            raise Violation("the loop waits for a worker", "a lock is held across a disk operation")
        for model in self.models:
            model.after_turn()

    def run_ready(self) -> None:
        for _ in range(ROUNDS_MAX):
            if not self.loop.has_ready or self.has_crashed:
                return
            self.turn(self.loop.next_ready().run)
        raise Violation("the loop never rests", "callbacks call for more callbacks without end")

    def run_tasks(self, quanta: int) -> None:
        """Lets workers do so many disk operations, each time one that chance names."""
        for _ in range(quanta):
            runnable = TASKS.runnable()
            if not runnable or self.has_crashed:
                return
            try:
                TASKS.resume(self.rng.choice(runnable) if len(runnable) > 1 else runnable[0])
            except PowerLost:
                self.has_crashed = True
                return

    def advance(self, ms: int) -> None:
        """Time passes, and alarms ring as they become due."""
        end_ms = self.clock.monotonic_ms() + ms
        for _ in range(ROUNDS_MAX):
            deadline_ms = self.loop.deadline_ms()
            if deadline_ms is None or deadline_ms > end_ms:
                self.clock.advance(end_ms - self.clock.monotonic_ms())
                return
            self.clock.advance(max(0, deadline_ms - self.clock.monotonic_ms()))
            handle = self.loop.next_due()
            assert handle is not None
            self.turn(handle.run)
            if self.failure is not None or self.has_crashed:
                return
        raise Violation("the loop never rests", f"more than {ROUNDS_MAX} alarms in {ms} ms")

    # The network

    def connect(self, owner: str) -> Link:
        self._link_numbers += 1
        self.links = [link for link in self.links if link.is_open]
        link = Link(self, self._link_numbers, owner)
        self.links.append(link)
        return link

    def transmit(self, link: Link | None) -> None:
        """Mostly what was sent arrives at once and whole. Not always."""
        if link is None:
            return
        chance = 0 if self.is_calm else self.rng.random()
        if chance < 0.88:
            link.deliver()
        elif chance < 0.92 and len(link.to_broker) > 1:
            link.deliver(self.rng.randint(1, len(link.to_broker) - 1))
        elif chance < 0.94:
            self.stats.faults["cut before the request"] += 1
            link.cut()
        elif chance < 0.97:
            self.stats.faults["cut before the response"] += 1
            link.is_reading = False
            link.deliver()
            link.unread.clear()
            link.cut()

    def deliver_all(self) -> None:
        for link in list(self.links):
            if not link.is_reading:
                link.read_again()
            while link.deliver():
                pass

    # Rest: nothing under way, every timeout over

    def rest(self) -> None:
        """Lets everything come to its end without any new request, then asks the models."""
        self.disk.mend()
        self.settle()
        self.advance(REST_MS)
        self.settle()
        waiting = [pending for link in self.links for pending in link.in_flight]
        # From now on: the network may have kept it back until now.
        longest_ms = max((one.timeout_ms + SLACK_MS for one in waiting), default=0)
        while longest_ms > 0 and self.failure is None and not self.has_crashed:
            passing_ms = min(longest_ms, 1_000)
            self.advance(passing_ms)
            longest_ms -= passing_ms
            self.settle()
            waiting = [one for one in waiting if not one.is_done]
            if not waiting:
                break
        if self.failure is not None or self.has_crashed:
            return
        if waiting:
            one = waiting[0]
            raise Violation(
                "no answer",
                f"{type(one.request).__name__} v{one.version} sent at {one.sent_ms} had {one.timeout_ms} ms, "
                f"now is {self.clock.monotonic_ms()}: {one.request}",
            )
        for model in self.models:
            model.at_rest()

    def settle(self) -> None:
        """Delivers, runs callbacks and tasks, until nothing is left to do at this instant."""
        for _ in range(ROUNDS_MAX):
            self.deliver_all()
            self.run_ready()
            try:
                TASKS.run_all()
            except PowerLost:
                self.has_crashed = True
            if self.failure is not None or self.has_crashed:
                return
            if not self.loop.has_ready and not any(link.to_broker for link in self.links if link.is_open):
                return
        raise Violation("the loop never rests", "there is always more to deliver")

    # Processes

    def _start_process(self) -> None:
        self.is_starting = True
        TASKS.start_process()
        self.loop = SimulatedLoop(self.clock)
        self.failure = None
        self.server = Server(self.loop)  # type: ignore[arg-type]
        self.core = BrokerCore(
            Settings(self.scenario.settings),
            disk=self.disk,
            metadata_path=Path("metadata.sqlite"),
            clock=self.clock,
            runner=self.server,
            on_failure=self._on_failure,
        )
        if "guard" not in self.scenario.crowd:  # who changes it, begins with the broker's own level
            by_name = self.core.features.by_name
            by_name[SHARE] = by_name[SHARE]._replace(level=self.scenario.share_version)
        self.loop.run_coroutine(self.server.listen(self.core, [plain_listener("127.0.0.1", 9092)]))
        self.is_starting = False

    def _on_failure(self, error: Exception) -> None:
        self.failure = error

    def end(self, how: End) -> None:
        """The process ends this way, and a new one starts."""
        self.trail.note(f"ends by {how.value}")
        self.stats.restarts[how.value] += 1
        for model in self.models:
            model.before_end(how)
        if how in (End.CLEAN, End.FAILED):
            meant, how = how, self._stop(how)
            if how is not meant:
                for model in self.models:
                    model.before_end(how)
        if how in (End.KILL, End.POWER):
            self.disk.switch_off()
            TASKS.kill()
            if how is End.POWER:
                survival = None if self.rng.random() < 0.3 else self.rng
                self.disk.power_cycle(survival)
                self.metadata_disk.power_cycle(survival)
        TASKS.kill()
        for link in self.links:
            link.broker_died()
        self.links.clear()
        self.has_crashed = False
        self.disk.restart()
        self._start_again()
        for model in self.models:
            model.after_start(how)

    def _stop(self, how: End) -> End:
        """As the embedded broker does it. What it could not do cleanly is as good as a kill."""
        try:
            self.loop.run_coroutine(self.server.stop())
        except PowerLost:
            return self.crash_kind
        except (OSError, KafkaError) as error:
            self.trail.note(f"not stopped cleanly: {error}")
            return End.FAILED
        return how

    def _start_again(self) -> None:
        """A start may meet a failing disk, and then another start follows, on a disk that works."""
        try:
            self._start_process()
        except Violation:
            raise
        except Exception as error:
            text = "".join(traceback.format_exception(error))
            raise Violation("the broker does not start", text) from error

    # The models see appends

    def appending(self, log: PartitionLog, data: bytes) -> None:
        for model in self.models:
            model.appending(log, data)

    def appended(self, log: PartitionLog, data: bytes, appended: Appended) -> None:
        for model in self.models:
            model.appended(log, data, appended)
        if log.topic.startswith("dlq"):
            self._maybe_lose_power()

    def refused(self, log: PartitionLog, data: bytes) -> None:
        for model in self.models:
            model.refused(log, data)

    def marking(self, log: PartitionLog, producer_id: int, commit: bool) -> None:
        for model in self.models:
            model.marking(log, producer_id, commit)

    def marked(self, log: PartitionLog, producer_id: int, commit: bool, appended: Appended) -> None:
        for model in self.models:
            model.marked(log, producer_id, commit, appended)
        self._maybe_lose_power()

    def _maybe_lose_power(self) -> None:
        if self.is_power_lost_at_marker and not self.is_starting and not self.is_calm:
            self.is_power_lost_at_marker = False
            self.crash_kind = End.POWER
            self.disk.fail_at(self.rng.randint(1, 3))

    def decided(self, log: LogModel, entries: list[Entry], commit: bool) -> None:
        for model in self.models:
            model.decided(log, entries, commit)
