"""The circumstances of a life of task queues."""

from dataclasses import dataclass, fields
from itertools import accumulate
from random import Random
from typing import Any

from tests.simulation import registry
from tests.simulation import scenario as broker
from tests.simulation.jobs.apps import Forwarding, OnceWorker, OtherForwarding, Scheduling
from tests.simulation.jobs.model import Jobs, JobsLogs, JobsShare
from tests.simulation.jobs.steps import TABLE
from tests.simulation.path import scenario as path

APPLICATIONS: dict[str, Any] = {
    "scheduling": Scheduling,
    "once": OnceWorker,
    "forwarding": Forwarding,
    "other forwarding": OtherForwarding,
}
ACTORS: dict[str, Any] = {
    **{name: (make, 0, 0) for name, (make, _, _) in registry.ACTORS.items()},
    "admin": (path.CalmAdmin, 1, 1),
    "plain": (registry.ACTORS["plain"][0], 1, 2),
    "share admin": (registry.ACTORS["share admin"][0], 0, 1),
}
MODELS: dict[str, Any] = {"path": Jobs, **registry.MODELS, "logs": JobsLogs, "share": JobsShare}


@dataclass
class JobsScenario(path.PathScenario):
    lost_commits: float = 0.0
    """How often the answer to a COMMIT is lost."""


def scenario(rng: Random) -> JobsScenario:
    base = path.scenario(rng)
    given = {each.name: getattr(base, each.name) for each in fields(path.PathScenario)}
    emphasis = {
        name: (0 if not base.has_faults else rng.choice((0.5, 1, 1, 3)))
        for name, step in TABLE.items()
        if step.is_fault
    }
    weights = [round(step.weight * 10 * emphasis.get(name, 1)) for name, step in TABLE.items()]
    settings = dict(base.settings)
    settings["producer.id.expiration.ms"] = "86400000"
    return JobsScenario(
        **given
        | {
            "settings": settings,
            "step_names": list(TABLE),
            "step_weights": list(accumulate(weights)),
            "habits": rng.choice(({"once": 1}, {"scheduling": 1}, {"once": 1, "scheduling": 1})),
            "share_groups": broker.SHARE_GROUPS[:1],
        },
        lost_commits=rng.choice((0, 0.02, 0.2)) if base.has_faults else 0,
    )
