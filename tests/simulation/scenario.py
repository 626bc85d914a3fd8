"""The circumstances of one life: few names, small segments, short times, so that rare paths are common."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from random import Random

from headrace.broker.call import ANONYMOUS
from headrace.broker.settings.access_table import STANDARD_AUTHORIZER
from tests.simulation import steps

TOPICS = ("alpha", "beta", "gamma")
CONSUMER_GROUP, CLASSIC_GROUP = "modern", "classic"
GROUPS = (CONSUMER_GROUP, CLASSIC_GROUP)
SHARE_GROUPS = ("s1", "s2")
PARTITIONS_MAX = 3
CROWDS: tuple[dict[str, tuple[int, int]], ...] = (
    # Who takes part, where that differs from the registry: everybody; share groups above all; no share groups.
    {},
    {
        "groupadmin": (0, 0), "plain": (1, 1), "bulk": (0, 1), "growing": (0, 1), "idempotent": (0, 1),
        "transactional": (0, 2), "modern": (0, 0), "classic": (0, 0), "reader": (0, 0), "sharer": (2, 4),
        "share admin": (1, 1), "flooder": (0, 0),
    },
    {"sharer": (0, 0), "share admin": (0, 0)},
)  # fmt: skip
EVERYBODY = (
    "admin", "groupadmin", "plain", "idempotent", "transactional", "modern", "classic", "reader", "bulk", "growing",
    "sharer", "share admin", "flooder", "guard",
)  # fmt: skip
SHARING, NOT_SHARING = CROWDS[1], CROWDS[2]
WRITING = NOT_SHARING | {
    "groupadmin": (0, 0), "plain": (0, 1), "idempotent": (1, 1), "transactional": (2, 3), "modern": (0, 0),
    "classic": (0, 0), "reader": (1, 1), "flooder": (0, 0),
}  # fmt: skip
"""Who takes part where logs are tight."""
GUARDED_FROM = 100_000_000
"""Lives of the seeds from here on have access control. Those below stay what they were when their seeds were kept."""
WIDE_FROM = 90_000_000
"""Lives of the seeds from here to GUARDED_FROM have a topic of hundreds of partitions, and somebody who asks for all of
them at once."""
WIDE_PARTITIONS = (520, 620)
"""More than a turn may have operations: see `turns`."""
WIDE_STEPS = {
    "act": 60, "network": 5, "work": 5, "rush": 40, "pass time": 50, "pass long time": 4, "rest": 2, "stop": 1,
    "kill": 1, "kill soon": 1, "lose power": 1, "fill disk": 1, "cut": 1,
}  # fmt: skip
ROLL_CRASHES = 250
"""So much more often the machine then crashes near a roll: see `steps`; ten times its weight there."""


@dataclass
class Scenario:
    settings: dict[str, str]
    journal_segment_bytes: int
    is_fsync: bool
    share_version: int = 2
    """The level of the feature: 2 has dead-letter queues."""
    step_names: list[str] = field(default_factory=list)
    step_weights: list[int] = field(default_factory=list)
    crowd: dict[str, tuple[int, int]] = field(default_factory=dict)
    """How many of an actor there are, at least and at most, where that differs from the registry."""
    loners: float = 0.4
    """How many of those who read in share groups are no members. While all are, offsets can be set anew any time."""
    topics: tuple[str, ...] = TOPICS
    """The admin makes only these."""
    partitions_max: int = PARTITIONS_MAX
    """Of a new topic."""
    refuses_renames: bool = False
    """A full disk does. Not in lives of the seeds below `WIDE_FROM`, which stay what they were."""
    is_wide: bool = False
    """There is one topic, with very many partitions: see `actors/wide.py`."""
    share_groups: tuple[str, ...] = SHARE_GROUPS
    """Members of share groups join only these."""
    is_tight: bool = False
    """Topics have the smallest segments, keep little, and are mostly left alone: logs roll and lose their oldest
    segments all the time."""
    is_patient: bool = False
    """Members of share groups mostly wait for records, and give back much of what they got."""

    @property
    def producer_expiration_ms(self) -> int:
        return int(self.settings["producer.id.expiration.ms"])


def scenario(rng: Random) -> Scenario:
    """Of a life of the broker: in some of them, everybody meets in one place."""
    made = circumstances(rng)
    if made.crowd is SHARING and rng.random() < 0.5:
        made.is_patient = True
        made.crowd = SHARING | {"sharer": (3, 5)}
        made.share_groups = SHARE_GROUPS[:1]
        made.topics = TOPICS[: rng.choice((1, 2))]
        made.partitions_max = rng.choice((1, 2))
    if made.crowd is NOT_SHARING and rng.random() < 0.5:
        made.is_tight = True
        made.crowd = WRITING
        at = made.step_names.index("crash near a roll")
        made.step_weights = [
            total + (ROLL_CRASHES if number >= at else 0) for number, total in enumerate(made.step_weights)
        ]
        made.topics = TOPICS[:1]
        made.partitions_max = rng.choice((1, 2))
    return made


def guarded(made: Scenario) -> Scenario:
    """The same with access control: everybody may do everything, and somebody changes ACLs and users."""
    made.settings |= {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": ANONYMOUS}
    made.crowd = made.crowd | {"guard": (1, 1)}
    made.refuses_renames = True
    return made


def widened(made: Scenario, rng: Random) -> Scenario:
    """One topic with very many partitions, and nobody but who asks for all of them at once."""
    made.crowd = dict.fromkeys(EVERYBODY, (0, 0)) | {"wide": (1, 1)}
    made.is_wide = made.refuses_renames = True
    made.topics = TOPICS[:1]
    made.is_fsync = rng.random() < 0.5
    made.settings |= {
        "headrace.flush": "fsync" if made.is_fsync else "os",
        "producer.id.expiration.ms": "86400000",
    }
    made.journal_segment_bytes = rng.choice((10_000, 100_000))
    made.step_names = list(WIDE_STEPS)
    made.step_weights = list(accumulate(WIDE_STEPS.values()))
    return made


def circumstances(rng: Random) -> Scenario:
    flush = "fsync" if rng.random() < 0.9 else "os"
    settings = {
        "headrace.flush": flush,
        "headrace.disk.reserve.bytes": str(rng.choice((0, 2_000))),
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": str(rng.choice((1, 2))),
        "transaction.state.log.num.partitions": str(rng.choice((1, 2))),
        "share.coordinator.state.topic.num.partitions": str(rng.choice((1, 2))),
        "log.cleaner.backoff.ms": str(rng.choice((500, 1_000, 5_000))),
        "log.retention.check.interval.ms": str(rng.choice((500, 1_000, 5_000))),
        "producer.id.expiration.ms": str(rng.choice((120_000, 600_000, 86_400_000))),
        "group.initial.rebalance.delay.ms": str(rng.choice((0, 500))),
        "group.min.session.timeout.ms": "1000",
        "share.coordinator.snapshot.update.records.per.snapshot": str(rng.choice((2, 10, 100))),
        "share.coordinator.state.topic.prune.interval.ms": str(rng.choice((1_000, 10_000, 60_000))),
        "headrace.share.state.history.ms": _peek(rng, ("0", "0", "1000", "60000")),
        "share.version": str(rng.choice((1, 2))),
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.record.lock.duration.ms": str(rng.choice((1_000, 5_000, 30_000, 30_000))),
        "group.share.min.session.timeout.ms": "1000",
        "group.share.session.timeout.ms": str(rng.choice((5_000, 45_000))),
        "group.share.min.heartbeat.interval.ms": "100",
        "group.share.heartbeat.interval.ms": "500",
        "group.share.partition.max.record.locks": str(rng.choice((100, 2_000))),
        "headrace.share.initial.rebalance.delay.ms": str(rng.choice((0, 0, 100))),
        "group.share.assignment.interval.ms": str(rng.choice((0, 1_000))),
        "errors.deadletterqueue.auto.create.topics.enable": rng.choice(("true", "false")),
        "transaction.remove.expired.transaction.cleanup.interval.ms": "60000",
    }
    weights = []
    # Each life has its own mixture: some are calm, some are but for one kind of fault, some are not.
    haste = rng.choice((0.1, 0.5, 1, 1))
    emphasis = {
        name: haste * rng.choice((0, 0.5, 1, 1, 3)) for name, step in steps.TABLE.items() if step.is_fault
    }
    emphasis["stop"] = haste
    for name, step in steps.TABLE.items():
        weights.append(round(step.weight * 10 * emphasis.get(name, 1)))
    return Scenario(
        share_version=int(settings.pop("share.version")),
        settings=settings,
        journal_segment_bytes=rng.choice((1_000, 4_000, 100_000)),
        is_fsync=flush == "fsync",
        step_names=list(steps.TABLE),
        step_weights=list(accumulate(weights)),
        crowd=rng.choice(CROWDS),
        loners=rng.choice((0.3, 0.3, 1)),
    )


def _peek(rng: Random, choices: Sequence[str]) -> str:
    """A choice that is no draw: the next draws stay what they were, so that the kept seeds keep their lives."""
    ahead = Random()
    ahead.setstate(rng.getstate())
    return Random(ahead.getrandbits(64)).choice(choices)


def topic_configs(rng: Random, *, is_tight: bool = False) -> dict[str, str]:
    """For a new topic, or to alter one."""
    if is_tight:
        return {
            "internal.segment.bytes": str(rng.choice((300, 600))),
            "index.interval.bytes": "1",
            "file.delete.delay.ms": "0",
            "retention.bytes": str(rng.choice((300, 1_000, -1))),
        }
    configs = {
        "internal.segment.bytes": str(rng.choice((300, 600, 2_000, 100_000))),
        "index.interval.bytes": str(rng.choice((1, 100, 4_096))),
        "file.delete.delay.ms": str(rng.choice((0, 1_000, 60_000))),
    }
    policy = rng.random()
    if policy < 0.3:
        configs["cleanup.policy"] = "compact"
        configs["min.cleanable.dirty.ratio"] = rng.choice(("0.0", "0.3"))
        configs["delete.retention.ms"] = rng.choice(("0", "1000", "60000"))
        configs["segment.ms"] = rng.choice(("1000", "60000"))
        if rng.random() < 0.3:
            configs["cleanup.policy"] = "compact,delete"
    if policy > 0.6:
        configs["retention.ms"] = str(rng.choice((1_000, 30_000, 600_000)))
    if policy > 0.8:
        configs["retention.bytes"] = str(rng.choice((0, 500, 3_000)))
    if rng.random() < 0.1:
        configs["message.timestamp.type"] = "LogAppendTime"
    return configs
