"""A life of task queues: the whole path, and a database that workers share."""

import gc
from collections.abc import Collection
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import headrace.worker.later as later_module
import headrace.worker.transactions.copies as copies_module
import headrace.worker.transactions.relay as relay_module
from tests.simulation.jobs.database import Server
from tests.simulation.jobs.model import Jobs
from tests.simulation.jobs.scenario import ACTORS, APPLICATIONS, MODELS, JobsScenario, scenario
from tests.simulation.jobs.steps import TABLE
from tests.simulation.path.node import Node
from tests.simulation.path.world import PathWorld

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario


class JobsWorld(PathWorld):
    actor_table = ACTORS
    model_table = MODELS
    step_table = TABLE
    scenario: JobsScenario

    def __init__(self, seed: int, *, is_recorded: bool = False) -> None:
        gc.collect()  # what is left of the life before must not be collected, and so act, in the middle of this one
        self.server_of_jobs = Server(self)
        self.queue_stub = SimpleNamespace(middleware=(), now_ms=lambda: self.clock.wall_ms())
        """What tasks use of their queue."""
        self._values = 0
        ids = Random(seed)
        tokens: Any = SimpleNamespace(token_hex=lambda count: ids.randbytes(count).hex())
        later_module.secrets = copies_module.secrets = relay_module.secrets = tokens
        super().__init__(seed, is_recorded=is_recorded)

    def run(self, steps: int, kept: Collection[int] | None = None) -> None:
        try:
            super().run(steps, kept)
        finally:
            for node in [*self.nodes]:
                node.die()
            for node in [*self.nodes, *self.graves]:
                node.loop.close_tasks()
            self.server_of_jobs.connection.close()

    def make_scenario(self, rng: Random) -> "Scenario":
        return scenario(rng)

    @property
    def jobs(self) -> Jobs:
        return self.model(Jobs)

    def start_node(self) -> None:
        names, weights = list(self.scenario.habits), list(self.scenario.habits.values())
        self._add(self.rng.choices(names, weights)[0])

    def start_forwarders(self) -> None:
        """Together: one of them fences the other one."""
        self._add("forwarding")
        self._add("other forwarding")

    def _add(self, kind: str) -> None:
        self._node_numbers += 1
        self.nodes.append(Node(self, f"{kind}{self._node_numbers}", APPLICATIONS[kind]))

    def new_value(self) -> bytes:
        self._values += 1
        return b"due %d" % self._values
