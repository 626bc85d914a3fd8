"""The circumstances of a life of the whole path."""

from dataclasses import dataclass, field
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation import registry
from tests.simulation import scenario as broker
from tests.simulation.actors.admins import Admin
from tests.simulation.path.apps import Batching, Explicit, Held, Implicit, Iterating, Worker
from tests.simulation.path.model import Path, PathLogs, PathShare
from tests.simulation.path.steps import TABLE

if TYPE_CHECKING:
    from tests.simulation.path.apps import Application


class CalmAdmin(Admin):
    """Makes topics of one or two partitions, and mostly leaves them alone."""

    def step(self) -> None:
        if len(self.logs.topics) < len(broker.TOPICS) or self.rng.random() < 0.1:
            super().step()

    def partitions(self) -> int:
        return self.rng.choice((1, 1, 2))


APPLICATIONS: "dict[str, tuple[type[Application], int]]" = {
    # name: (class, how often)
    "explicit": (Explicit, 3),
    "implicit": (Implicit, 2),
    "iterating": (Iterating, 1),
    "held": (Held, 2),
    "batching": (Batching, 2),
    "worker": (Worker, 3),
}
ACTORS: dict[str, Any] = {
    **{name: (make, 0, 0) for name, (make, _, _) in registry.ACTORS.items()},
    "admin": (CalmAdmin, 1, 1),
    "plain": (registry.ACTORS["plain"][0], 1, 3),
    "bulk": (registry.ACTORS["bulk"][0], 0, 1),
    "idempotent": (registry.ACTORS["idempotent"][0], 0, 1),
    "transactional": (registry.ACTORS["transactional"][0], 0, 1),
    "sharer": (registry.ACTORS["sharer"][0], 0, 1),
    "share admin": (registry.ACTORS["share admin"][0], 1, 1),
}
MODELS: dict[str, Any] = {
    "path": Path,
    **registry.MODELS,
    "logs": PathLogs,
    "share": PathShare,
}


@dataclass
class PathScenario(broker.Scenario):
    habits: dict[str, int] = field(default_factory=dict)
    """How often each application is started."""
    slowness: float = 0.0
    """How often bytes on a wire are long on their way."""
    has_faults: bool = True
    nodes_max: int = 4
    drowsiness: float = 0.0
    """How often a machine is suspended, for a little longer than a lock, while its application works on a batch."""
    lock_ms: int = 0


def scenario(rng: Random) -> PathScenario:
    base = broker.circumstances(rng)
    lock_ms = rng.choice((1_000, 1_000, 2_000, 5_000, 30_000))
    settings = base.settings | {
        "group.share.record.lock.duration.ms": str(lock_ms),
        "group.share.session.timeout.ms": str(rng.choice((10_000, 45_000))),
        "group.share.heartbeat.interval.ms": str(rng.choice((1_000, 5_000))),
        "log.retention.check.interval.ms": "5000",
        "log.cleaner.backoff.ms": "5000",
    }
    haste = rng.choice((0, 0.3, 1, 1, 2))
    emphasis = {name: haste * rng.choice((0, 0.5, 1, 1, 3)) for name, step in TABLE.items() if step.is_fault}
    weights = [round(step.weight * 10 * emphasis.get(name, 1)) for name, step in TABLE.items()]
    return PathScenario(
        settings=settings,
        journal_segment_bytes=base.journal_segment_bytes,
        is_fsync=base.is_fsync,
        share_version=base.share_version,
        step_names=list(TABLE),
        step_weights=list(accumulate(weights)),
        crowd={},
        habits={name: weight * rng.choice((0, 1, 1, 3)) + 1 for name, (_, weight) in APPLICATIONS.items()},
        slowness=rng.choice((0, 0.05, 0.2, 0.5)) if haste else 0,
        has_faults=haste > 0,
        nodes_max=rng.choice((1, 4, 4)),
        drowsiness=rng.choice((0, 0, 0.2, 0.8)) if haste else 0,
        lock_ms=lock_ms,
    )
