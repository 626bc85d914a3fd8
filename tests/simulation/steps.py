"""What a step can be: somebody acts, bytes arrive, workers get on, time passes, something breaks."""

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.topics import INTERNAL
from headrace.log.layout import RECOVERY_POINTS, file_name, parse_directory_name
from headrace.log.partition_log import PartitionLog
from tests.simulation.model import End
from tests.simulation.tasks import SimulatedLock

if TYPE_CHECKING:
    from tests.simulation.world import World

WRITES = frozenset({"write", "create", "mkdir"})
"""What a full disk refuses."""
RENAMES = frozenset({"rename"})
CHANGES = WRITES | {"truncate", "rename", "remove"}
SYNCS = frozenset({"sync", "syncdir"})
READS = frozenset({"read"})


class Step(NamedTuple):
    weight: int
    take: "Callable[[World], None]"
    is_fault: bool = False


def act(world: "World") -> None:
    """One of the actors that wait for nothing goes on."""
    world.clock.advance(world.rng.choice((0, 0, 0, 1, 5)))
    ready = [actor for actor in world.actors if actor.is_ready]
    if ready:
        world.rng.choice(ready).step()


def network(world: "World") -> None:
    """What waits on a link is delivered; a client that did not read, reads."""
    waiting = [link for link in world.links if link.to_broker or not link.is_reading]
    if waiting:
        link = world.rng.choice(waiting)
        if not link.is_reading:
            link.read_again()
        link.deliver()


def work(world: "World") -> None:
    """The workers get on."""
    world.run_tasks(world.rng.choice((1, 3, 10, 50)))


def rush(world: "World") -> None:
    """The workers finish."""
    world.run_tasks(2_000)


def pass_time(world: "World") -> None:
    """Up to the next alarm, or by some time."""
    rng = world.rng
    deadline_ms = world.loop.deadline_ms()
    if deadline_ms is not None and rng.random() < 0.5:
        world.advance(max(0, deadline_ms - world.clock.monotonic_ms()))
    else:
        world.advance(rng.choice((10, 100, 500, 1_000, 5_000)))


def pass_long_time(world: "World") -> None:
    world.advance(world.rng.choice((20_000, 60_000, 60_000, 300_000)))


def rest(world: "World") -> None:
    world.rest()


def stop(world: "World") -> None:
    world.end(End.CLEAN)


def kill(world: "World") -> None:
    world.stats.faults["kill -9"] += 1
    world.end(End.KILL)


def kill_soon(world: "World") -> None:
    """In the middle of whatever the broker does at one of its next disk operations."""
    world.stats.faults["kill -9 within an operation"] += 1
    world.crash_kind = End.KILL
    world.disk.fail_at(world.rng.randint(1, 40))


def kill_then_lose_power(world: "World") -> None:
    """What a killed process has answered and not synced is safe once the next one has come to rest."""
    world.stats.faults["kill -9, then power loss"] += 1
    world.end(End.KILL)
    world.rest()
    if world.failure is None and not world.has_crashed:
        world.end(End.POWER)


def lose_power(world: "World") -> None:
    world.stats.faults["power loss"] += 1
    world.end(End.POWER)


def lose_power_soon(world: "World") -> None:
    world.stats.faults["power loss within an operation"] += 1
    world.crash_kind = End.POWER
    world.disk.fail_at(world.rng.randint(1, 40))


def lose_power_at_marker(world: "World") -> None:
    """Right after the next marker of a transaction, whose decision must be safe by then, or the next dead letter,
    which must be safe before its record is archived.
    """
    world.stats.faults["power loss at a marker"] += 1
    world.is_power_lost_at_marker = True


def crash_near_roll(world: "World") -> None:
    """Just after a partition has got a new segment; or, when it has got one while it was synced, just after it is
    written down what of the log is trusted.
    """
    rng = world.rng
    world.stats.faults["crash near a roll"] += 1
    if rng.random() < 0.5:
        world.crash_kind = rng.choice((End.KILL, End.POWER))
        world.disk.fail_near(_is_roll, within=rng.choice((1, 2, 3, 4, 10)))
    else:
        world.crash_kind = End.POWER
        world.disk.fail_near(_TrustAfterRoll(world), within=rng.choice((3, 3, 4, 6)))


def _is_roll(kind: str, path: str) -> bool:
    directory, _, name = path.rpartition("/")
    is_later = name.endswith(".log") and not name.startswith(file_name(0, ""))
    return kind == "create" and is_later and not directory.startswith("__")


class _TrustAfterRoll:
    """Recovery points are saved, after a log has rolled while a worker synced it."""

    def __init__(self, world: "World") -> None:
        self._logs = world.core.logs.logs
        self._rolled: dict[PartitionLog, object] = {}
        """With who synced it."""

    def __call__(self, kind: str, path: str) -> bool:
        if _is_roll(kind, path):
            log = self._logs.get(parse_directory_name(path.rpartition("/")[0]) or ("", 0))
            if log is not None and _who_syncs(log) is not None:
                self._rolled[log] = _who_syncs(log)
        is_saving = kind == "rename" and path.endswith(f" {RECOVERY_POINTS}")
        return is_saving and any(_who_syncs(log) is not worker for log, worker in self._rolled.items())


def _who_syncs(log: PartitionLog) -> object:
    lock = log.files._syncing
    assert isinstance(lock, SimulatedLock)
    return lock.owner


def fill_disk(world: "World") -> None:
    rng = world.rng
    world.stats.faults["ENOSPC"] += 1
    count = rng.choice((1, 1, 1, 3, 10, 40))
    kinds = WRITES | RENAMES if world.scenario.refuses_renames else WRITES
    world.disk.fail_soon(errno.ENOSPC, after=rng.randint(0, 15), count=count, kinds=kinds)


def fail_write(world: "World") -> None:
    world.stats.faults["EIO at a write"] += 1
    world.disk.fail_soon(errno.EIO, after=world.rng.randint(0, 15), count=1, kinds=CHANGES)


def fail_sync(world: "World") -> None:
    world.stats.faults["EIO at a sync"] += 1
    world.disk.fail_soon(errno.EIO, after=world.rng.randint(0, 5), count=1, kinds=SYNCS)


def fail_read(world: "World") -> None:
    world.stats.faults["EIO at a read"] += 1
    world.disk.fail_soon(errno.EIO, after=world.rng.randint(0, 15), count=1, kinds=READS)


def set_clock(world: "World") -> None:
    world.stats.faults["wall clock set"] += 1
    hour_ms = 3_600_000
    jump_ms = world.rng.choice((-24 * hour_ms, -hour_ms, -60_000, 60_000, hour_ms, 2 * hour_ms))
    world.clock.jump(jump_ms)
    world.trail.note(f"the wall clock jumps by {jump_ms} ms")


def flip_bit(world: "World") -> None:
    """Of one file of one partition, once in a life, and the process ends. Then only detection is demanded there.

    At times it is not a bit but a block.
    """
    if world.was_damaged or (world.rng.random() < 0.4 and _lose_block(world)):
        return
    flipped = world.disk.flip_some_bit(
        world.rng, lambda path: parse_directory_name(path.split("/")[0]) is not None
    )
    if flipped is None:
        return
    parsed = parse_directory_name(flipped.split("/")[0])
    assert parsed is not None
    world.stats.faults["bit flipped"] += 1
    world.trail.note(f"a bit flips: {flipped}")
    world.damage(*parsed)
    world.end(End.KILL)


def _lose_block(world: "World") -> bool:
    """Of a closed segment, which a start does not read: whoever comes to it first has to live with it."""
    logs: dict[str, list[str]] = {}
    for path in world.disk.files():
        directory, _, name = path.partition("/")
        parsed = parse_directory_name(directory)
        if parsed is not None and parsed[0] not in INTERNAL and name.endswith(".log"):
            logs.setdefault(directory, []).append(path)
    closed = {directory: paths[:-1] for directory, paths in sorted(logs.items()) if len(paths) > 1}
    if not closed:
        return False
    directory = world.rng.choice(list(closed))
    paths = closed[directory]
    lost = paths[0] if world.rng.random() < 0.5 else world.rng.choice(paths)  # retention looks at the oldest
    parsed = parse_directory_name(directory)
    assert parsed is not None
    world.disk.lose_block(lost)
    world.stats.faults["block lost"] += 1
    world.trail.note(f"a block is lost: {lost}")
    world.damage(*parsed)
    world.end(End.KILL)
    return True


def cut(world: "World") -> None:
    world.stats.faults["connection cut"] += 1
    if world.links:
        world.rng.choice(world.links).cut()


TABLE: dict[str, Step] = {
    "act": Step(600, act),
    "network": Step(40, network),
    "work": Step(100, work),
    "rush": Step(60, rush),
    "pass time": Step(90, pass_time),
    "pass long time": Step(8, pass_long_time),
    "rest": Step(8, rest),
    "stop": Step(6, stop),
    "kill": Step(8, kill, is_fault=True),
    "kill soon": Step(5, kill_soon, is_fault=True),
    "kill then lose power": Step(4, kill_then_lose_power, is_fault=True),
    "lose power": Step(8, lose_power, is_fault=True),
    "lose power soon": Step(5, lose_power_soon, is_fault=True),
    "lose power at marker": Step(4, lose_power_at_marker, is_fault=True),
    "crash near a roll": Step(5, crash_near_roll, is_fault=True),
    "fill disk": Step(6, fill_disk, is_fault=True),
    "fail write": Step(2, fail_write, is_fault=True),
    "fail sync": Step(2, fail_sync, is_fault=True),
    "fail read": Step(2, fail_read, is_fault=True),
    "set clock": Step(4, set_clock, is_fault=True),
    "cut": Step(8, cut, is_fault=True),
    "flip bit": Step(5, flip_bit, is_fault=True),
}
