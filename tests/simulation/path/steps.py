"""What a step can be, beside those of the broker's own simulation."""

from typing import TYPE_CHECKING

from tests.simulation import steps as broker
from tests.simulation.steps import Step

if TYPE_CHECKING:
    from tests.simulation.path.world import PathWorld


def act(world: "PathWorld") -> None:
    """Those who make topics and records do something."""
    for _ in range(world.rng.choice((1, 2, 4))):
        broker.act(world)


def flow(world: "PathWorld") -> None:
    """A little time passes."""
    world.advance(world.rng.choice((1, 10, 50, 200, 200, 1_000)))


def pass_time(world: "PathWorld") -> None:
    world.advance(world.rng.choice((500, 1_000, 2_000, 5_000, 10_000)))


def pass_long_time(world: "PathWorld") -> None:
    world.advance(world.rng.choice((20_000, 60_000)))


def stop_node(world: "PathWorld") -> None:
    """For longer than its locks, or not; now, or when it has records in its hands."""
    if world.nodes:
        stands_still = world.rng.random() < 0.5
        world.stats.faults["node suspended" if stands_still else "node stopped"] += 1
        ms = world.rng.choice((300, 1_200, 1_200, 2_500, 2_500, 6_000, 35_000, 70_000))
        node = world.rng.choice(world.nodes)
        if world.rng.random() < 0.5:
            node.stop(ms, stands_still=stands_still)
        else:
            node.app.stop_soon(ms, stands_still=stands_still)


def kill_node(world: "PathWorld") -> None:
    if world.nodes:
        world.stats.faults["node killed"] += 1
        node = world.rng.choice(world.nodes)
        world.trail.note(f"{node.name} is killed")
        node.die()
        world.bury(node)


def start_node(world: "PathWorld") -> None:
    if len(world.nodes) < world.scenario.nodes_max:
        world.start_node()


def interrupt(world: "PathWorld") -> None:
    """A signal handler raises in the middle of one of the next polls, or a task is canceled."""
    if world.nodes:
        world.rng.choice(world.nodes).app.interrupt_soon()


def cut(world: "PathWorld") -> None:
    wires = [wire for wire in world.wires if wire.is_open]
    if wires:
        world.stats.faults["connection cut"] += 1
        world.rng.choice(wires).cut()


def lose_response(world: "PathWorld") -> None:
    """The broker has the request; its response never comes, and the connection is cut."""
    wires = [wire for wire in world.wires if wire.is_open]
    if wires:
        world.stats.faults["response lost"] += 1
        wire = world.rng.choice(wires)
        wire.drop_answers()
        wire.cut()


def hang(world: "PathWorld") -> None:
    """Neither side hears of the other any more, and nobody says so."""
    wires = [wire for wire in world.wires if wire.is_open and not wire.is_hanging]
    if wires:
        world.stats.faults["connection hangs"] += 1
        world.rng.choice(wires).is_hanging = True


def move_coordinator(world: "PathWorld") -> None:
    world.stats.faults["coordinator moves"] += 1
    world.moving_until_ms = world.clock.monotonic_ms() + world.rng.choice((100, 1_000, 3_000, 12_000))


def refuse_connections(world: "PathWorld") -> None:
    world.stats.faults["connections refused"] += 1
    world.refusing_until_ms = world.clock.monotonic_ms() + world.rng.choice((100, 1_000, 3_000, 20_000))


TABLE: dict[str, Step] = {
    "act": Step(300, act),
    "network": Step(20, broker.network),
    "work": Step(30, broker.work),
    "flow": Step(350, flow),
    "pass time": Step(60, pass_time),
    "pass long time": Step(3, pass_long_time),
    "rest": Step(3, broker.rest),
    "start node": Step(20, start_node),
    "stop": Step(3, broker.stop),
    "kill node": Step(5, kill_node, is_fault=True),
    "stop node": Step(45, stop_node, is_fault=True),
    "interrupt": Step(30, interrupt, is_fault=True),
    "cut": Step(10, cut, is_fault=True),
    "lose response": Step(10, lose_response, is_fault=True),
    "hang": Step(5, hang, is_fault=True),
    "move coordinator": Step(15, move_coordinator, is_fault=True),
    "refuse connections": Step(4, refuse_connections, is_fault=True),
    "kill": Step(4, broker.kill, is_fault=True),
    "kill soon": Step(3, broker.kill_soon, is_fault=True),
    "lose power": Step(3, broker.lose_power, is_fault=True),
    "fill disk": Step(3, broker.fill_disk, is_fault=True),
}
