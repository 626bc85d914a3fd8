"""A life of the whole path: time passes event by event, on the broker's machine, on the wires and on the nodes."""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from headrace.log.disk import PowerLost
from tests.simulation import turns
from tests.simulation.path import environment
from tests.simulation.path.model import Path, PathShare
from tests.simulation.path.node import Node
from tests.simulation.path.scenario import ACTORS, APPLICATIONS, MODELS, PathScenario, scenario
from tests.simulation.path.steps import TABLE
from tests.simulation.path.wire import Wire
from tests.simulation.tasks import TASKS
from tests.simulation.violation import Violation
from tests.simulation.world import ROUNDS_MAX, World

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario

EVENTS_MAX = 200_000


class PathWorld(World):
    actor_table = ACTORS
    model_table = MODELS
    step_table = TABLE
    scenario: PathScenario

    def __init__(self, seed: int, *, is_recorded: bool = False) -> None:
        environment.install()
        self.nodes: list[Node] = []
        self.graves: list[Node] = []
        self.wires: list[Wire] = []
        self.moving_until_ms = 0
        self.refusing_until_ms = 0
        self._node_numbers = 0
        self._reported: Violation | None = None
        super().__init__(seed, is_recorded=is_recorded)
        environment.begin(self)
        for _ in range(min(self.scenario.nodes_max, self.rng.choice((1, 2, 2, 3)))):
            self.start_node()

    def make_scenario(self, rng: Random) -> "Scenario":
        return scenario(rng)

    @property
    def path(self) -> Path:
        return self.model(Path)

    @property
    def share(self) -> PathShare:
        return self.model(PathShare)

    # Nodes

    def start_node(self) -> None:
        self._node_numbers += 1
        names = list(APPLICATIONS)
        weights = list(self.scenario.habits.values())
        kind = self.rng.choices(names, weights)[0]
        self.nodes.append(Node(self, f"{kind}{self._node_numbers}", APPLICATIONS[kind][0]))

    def bury(self, node: Node) -> None:
        """Kept: what is left of it must not be collected, and so act, at a time that nobody has chosen."""
        self.nodes.remove(node)
        self.graves.append(node)

    def wire(self, node: Node, protocol: object) -> Wire:
        self._link_numbers += 1
        self.links = [link for link in self.links if link.is_open]
        wire = Wire(self, self._link_numbers, node, protocol)
        self.links.append(wire)
        self.wires = [one for one in self.wires if not one.is_over]
        self.wires.append(wire)
        return wire

    # The network's moods

    @property
    def is_moving(self) -> bool:
        return not self.is_calm and self.clock.monotonic_ms() < self.moving_until_ms

    @property
    def refuses_connections(self) -> bool:
        return not self.is_calm and self.clock.monotonic_ms() < self.refusing_until_ms

    def latency_ms(self) -> int:
        """Never none: a client may ask again as soon as it has its answer."""
        if self.is_calm or self.rng.random() < 0.7:
            return 1
        if self.rng.random() < self.scenario.slowness:
            self.stats.faults["delayed"] += 1
            return self.rng.choice((50, 200, 700, 1_500, 6_000))
        return self.rng.choice((1, 2, 5, 20))

    # Violations inside of a client

    def report(self, violation: Violation) -> None:
        """A client would take it for an error of its own: it is raised when the client's turn is over."""
        if self._reported is None:
            self._reported = violation

    def raise_reported(self) -> None:
        if self._reported is not None:
            reported, self._reported = self._reported, None
            raise reported

    # Time

    def advance(self, ms: int) -> None:
        """Time passes, and what becomes due happens, wherever that is."""
        end_ms = self.clock.monotonic_ms() + ms
        for _ in range(EVENTS_MAX):
            self.flow()
            if self.failure is not None or self.has_crashed:
                return
            due = [one for one in (self.loop.deadline_ms(), *self._others_due()) if one is not None]
            now_ms = self.clock.monotonic_ms()
            next_ms = max(now_ms, min(due, default=end_ms))
            if next_ms > end_ms or not due:
                self.clock.advance(end_ms - now_ms)
                return
            if next_ms > now_ms:
                self.clock.advance(next_ms - now_ms)
            handle = self.loop.next_due()
            if handle is not None:
                self.turn(handle.run)
            if next_ms >= end_ms and handle is None:
                self.flow()
                return
        raise Violation("the path never rests", f"more than {EVENTS_MAX} events in {ms} ms")

    def _others_due(self) -> list[int | None]:
        now_ms = self.clock.monotonic_ms()
        dues = [wire.due_ms() for wire in self.wires]
        dues += [node.due_ms() for node in self.nodes]
        # What is due now and was not taken, such as bytes for a broker that does not read, waits for something else.
        return [due for due in dues if due is None or due > now_ms]

    def flow(self) -> None:
        """All that can happen at this instant."""
        for _ in range(ROUNDS_MAX):
            did = False
            if self.loop.has_ready:
                did = True
                self.run_ready()
            if TASKS.runnable() and (self.is_calm or self.rng.random() < 0.97):
                did = True
                self._run_all_tasks()
            if self.has_crashed or self.failure is not None:
                return
            for wire in list(self.wires):
                did = wire.carry() or did
                if self.has_crashed or self.failure is not None:
                    return
            for node in list(self.nodes):
                did = node.turn() or did
                if node.is_dead:
                    self.bury(node)
            if not did:
                return
        raise Violation("the path never rests", "there is always more to do at one instant")

    def _run_all_tasks(self) -> None:
        if self.is_calm or self.rng.random() < 0.8:
            try:
                TASKS.run_all()
            except PowerLost:
                self.has_crashed = True
        else:
            self.run_tasks(self.rng.choice((1, 3, 10)))

    def settle(self) -> None:
        self.deliver_all()
        self.flow()
        super().settle()

    def step(self, number: int) -> None:
        turns.watch()
        super().step(number)
        self.raise_reported()

    def wait_for(self, is_true: "Callable[[], bool]", within_ms: int) -> bool:
        """Lets time pass until then."""
        until_ms = self.clock.monotonic_ms() + within_ms
        while not is_true() and self.clock.monotonic_ms() < until_ms:
            turns.watch()
            self.advance(100)
            if self.failure is not None or self.has_crashed:
                self._end_if_needed()
        return is_true()
