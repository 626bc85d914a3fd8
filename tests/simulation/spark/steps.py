"""What a step can be, beside those of the other simulations."""

import shutil
from typing import TYPE_CHECKING

from tests.simulation import steps as broker
from tests.simulation.path import steps as path
from tests.simulation.spark.model import Wish
from tests.simulation.steps import Step

if TYPE_CHECKING:
    from tests.simulation.spark.query import Lineage, Run
    from tests.simulation.spark.world import SparkWorld

LINEAGES_MAX = 4
SUSPENDED_MS = 70_000
SESSION_MS = 46_000
"""A little longer than the longest session of a member."""


def start_query(world: "SparkWorld") -> None:
    """One that was stopped comes back, perhaps with other options; or a new one begins."""
    wish = world.spark.wish
    held_up = None if wish is None else wish.group
    idle = [
        one for one in world.spark.lineages if one.run is None and not one.is_retired and one.group != held_up
    ]
    if idle and (world.rng.random() < 0.9 or len(world.spark.lineages) >= LINEAGES_MAX):
        world.start_run(world.rng.choice(idle))
    elif len(world.spark.lineages) < 2:
        group = world.rng.choice(world.scenario.groups)
        if group != held_up:
            world.start_run(world.new_lineage(group))


def stop_query(world: "SparkWorld") -> None:
    run = _some_run(world)
    if run is not None:
        run.stop()


def kill_driver(world: "SparkWorld") -> None:
    run = _some_run(world)
    if run is not None:
        world.stats.faults["driver killed"] += 1
        _kill(world, run)


def kill_executor(world: "SparkWorld") -> None:
    run = _some_run(world)
    if run is not None and run.executor is not None and not run.executor.is_dead:
        world.stats.faults["executor killed"] += 1
        run.executor.die()
        world.bury(run.executor)


def cut_power(world: "SparkWorld") -> None:
    """Of the machine that has the checkpoint: its processes end, and what they have not synced is at risk."""
    lineage = _some_lineage(world)
    if lineage is not None:
        world.stats.faults["power of the checkpoint lost"] += 1
        for run in lineage.runs:
            if not run.is_over:
                _kill(world, run)
        if lineage.folder.is_dir():
            world.files.cut_power(lineage.folder, world.rng)


def copy_checkpoint(world: "SparkWorld") -> None:
    """A backup is made; it is used beside the original, or in its place."""
    lineage = _some_lineage(world)
    if lineage is None or len(world.spark.lineages) >= LINEAGES_MAX or not lineage.folder.is_dir():
        return
    world.stats.faults["checkpoint copied"] += 1
    name = f"{lineage.name}c{len(world.spark.lineages)}"
    folder = world.files.root / name
    shutil.copytree(lineage.folder, folder)
    world.files.sync_all(folder)
    lineage.has_twin = True
    world.spark.lineages.append(lineage.copied(name, folder))


def lose_notes(world: "SparkWorld") -> None:
    """Somebody removes files of the source, or of Spark's offset log, while no query has them."""
    lineage = _some_lineage(world)
    if lineage is None or not lineage.notes.is_dir() or any(not run.is_over for run in lineage.runs):
        return
    world.stats.faults["notes lost"] += 1
    _lose(world, lineage)


def begin_anew(world: "SparkWorld") -> None:
    """Somebody stops the queries of a group, to reset it or delete it; or the group takes them for dead."""
    groups = sorted({one.group for one in world.spark.lineages})
    if not groups or world.spark.wish is not None:
        return
    rng = world.rng
    group = rng.choice(groups)
    is_suspended = rng.random() < 0.3
    for lineage in world.spark.lineages:
        run = lineage.run if lineage.group == group else None
        if run is None:
            continue
        if is_suspended:
            run.node.stop(SUSPENDED_MS, stands_still=True)
        elif rng.random() < 0.7:
            run.stop()
        else:
            _kill(world, run)
    world.spark.wish = Wish(group, is_delete=rng.random() < 0.4)
    if is_suspended:
        world.advance(SESSION_MS)


def end_doomed(world: "SparkWorld") -> None:
    for lineage in world.spark.lineages:
        for run in lineage.runs:
            if run.is_doomed and not run.is_over:
                world.stats.faults["killed with its notes"] += 1
                _kill(world, run)
                if all(each.is_over for each in lineage.runs) and lineage.notes.is_dir():
                    _lose(world, lineage)


def _lose(world: "SparkWorld", lineage: "Lineage") -> None:
    if world.chance.random() < 0.3:
        world.spark.lose_offsets(lineage)
    else:
        world.spark.lose_notes(lineage)


def stop_node(world: "SparkWorld") -> None:
    """For longer than its locks, or not."""
    if world.nodes:
        stands_still = world.rng.random() < 0.5
        world.stats.faults["node suspended" if stands_still else "node stopped"] += 1
        ms = world.rng.choice((300, 1_200, 1_200, 2_500, 6_000, 35_000, 70_000))
        world.rng.choice(world.nodes).stop(ms, stands_still=stands_still)


def _some_run(world: "SparkWorld") -> "Run | None":
    runs = [run for lineage in world.spark.lineages for run in lineage.runs if not run.is_over]
    return world.rng.choice(runs) if runs else None


def _some_lineage(world: "SparkWorld") -> "Lineage | None":
    return world.rng.choice(world.spark.lineages) if world.spark.lineages else None


def _kill(world: "SparkWorld", run: "Run") -> None:
    """With its executor, or without."""
    nodes = [run.node]
    if run.executor is not None and not run.executor.is_dead:
        nodes.append(run.executor)
    run.kill()
    for node in nodes:
        node.die()
        world.bury(node)


TABLE: dict[str, Step] = {
    "act": Step(250, path.act),  # type: ignore[arg-type]
    "network": Step(20, broker.network),
    "work": Step(30, broker.work),
    "flow": Step(350, path.flow),  # type: ignore[arg-type]
    "pass time": Step(40, path.pass_time),  # type: ignore[arg-type]
    "pass long time": Step(2, path.pass_long_time),  # type: ignore[arg-type]
    "rest": Step(2, broker.rest),
    "start query": Step(120, start_query),  # type: ignore[arg-type]
    "stop query": Step(30, stop_query),  # type: ignore[arg-type]
    "stop": Step(3, broker.stop),
    "begin anew": Step(8, begin_anew),  # type: ignore[arg-type]
    "kill driver": Step(30, kill_driver, is_fault=True),  # type: ignore[arg-type]
    "kill executor": Step(15, kill_executor, is_fault=True),  # type: ignore[arg-type]
    "cut power": Step(20, cut_power, is_fault=True),  # type: ignore[arg-type]
    "copy checkpoint": Step(4, copy_checkpoint, is_fault=True),  # type: ignore[arg-type]
    "lose notes": Step(10, lose_notes, is_fault=True),  # type: ignore[arg-type]
    "stop node": Step(20, stop_node, is_fault=True),  # type: ignore[arg-type]
    "cut": Step(10, path.cut, is_fault=True),  # type: ignore[arg-type]
    "lose response": Step(10, path.lose_response, is_fault=True),  # type: ignore[arg-type]
    "hang": Step(5, path.hang, is_fault=True),  # type: ignore[arg-type]
    "move coordinator": Step(10, path.move_coordinator, is_fault=True),  # type: ignore[arg-type]
    "refuse connections": Step(4, path.refuse_connections, is_fault=True),  # type: ignore[arg-type]
    "kill": Step(4, broker.kill, is_fault=True),
    "kill soon": Step(3, broker.kill_soon, is_fault=True),
    "lose power": Step(3, broker.lose_power, is_fault=True),
}
