"""What a step can be, beside those of the whole path: the database is killed, too."""

from typing import TYPE_CHECKING

from tests.simulation.path import steps as path
from tests.simulation.steps import Step

if TYPE_CHECKING:
    from tests.simulation.jobs.world import JobsWorld


def kill_database(world: "JobsWorld") -> None:
    world.stats.faults["database killed"] += 1
    world.server_of_jobs.kill(world.rng.choice((0, 0, 100, 2_000)))


TABLE: dict[str, Step] = {
    **{name: step for name, step in path.TABLE.items() if name != "interrupt"},
    "kill node": Step(25, path.kill_node, is_fault=True),
    "start node": Step(40, path.start_node),
    "kill database": Step(20, kill_database, is_fault=True),  # type: ignore[arg-type]
}
