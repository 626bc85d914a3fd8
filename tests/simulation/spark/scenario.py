"""The circumstances of a life with Spark."""

from dataclasses import dataclass
from itertools import accumulate, count
from random import Random
from typing import TYPE_CHECKING, Any

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.records import NewRecord, build_batch
from tests.simulation import registry
from tests.simulation import scenario as broker
from tests.simulation.actor import Ask, Life
from tests.simulation.actors.admins import Admin
from tests.simulation.actors.producers import ALL, Batch, Producer
from tests.simulation.path.model import PathLogs
from tests.simulation.spark.model import SOURCES, Place, Spark, SparkShare, Wish
from tests.simulation.spark.query import AVAILABLE_NOW, DEFAULT, ONCE, REJECT, RELEASE, Habits
from tests.simulation.spark.steps import TABLE

if TYPE_CHECKING:
    from tests.simulation.spark.world import SparkWorld
    from tests.simulation.world import World


TRIES_MAX = 8
"""To reset a group that has members."""
DONE = {ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND}


class SparkAdmin(Admin):
    """Makes topics, adds partitions to them, resets groups. What is deleted is left to the other simulations."""

    world: "SparkWorld"

    def live(self) -> Life:
        while True:
            missing = [name for name in broker.TOPICS if name not in self.logs.topics]
            if missing:
                yield from self.create(missing[0])
            elif self.world.spark.wish is not None:
                yield from self.begin_anew(self.world.spark.wish)
            elif self.rng.random() < 0.05:
                yield from self.grow(self.rng.choice(SOURCES))
            else:
                yield None

    def begin_anew(self, wish: Wish) -> Life:
        """Again until the group has no members, or for some time; and always until it is known what was done."""
        is_unknown = False
        starts: dict[Place, int] = {}
        tries = 0
        while is_unknown or tries < TRIES_MAX:
            tries += 1
            if wish.is_delete and self.starts_at_first(wish.group):
                response = yield from self.ask(DeleteGroupsRequest(groups_names=[wish.group]), 2)
                codes = {one.error_code for one in response.results} if response is not None else None
            else:
                wish.is_delete = False
                starts = starts or self.choose_starts()
                response = yield from self.reset(wish.group, starts)
                codes = self.codes_of(response)
            if codes is not None and codes <= DONE:
                self.world.stats.events["groups begun anew"] += 1
                break
            is_unknown = is_unknown or codes is None
            yield None
        self.world.spark.wish = None

    def starts_at_first(self, group: str) -> bool:
        settings = self.world.core.settings
        return settings.group_str(group, "share.auto.offset.reset") == "earliest"

    def choose_starts(self) -> "dict[Place, int]":
        topics = self.rng.choice((SOURCES, SOURCES[:1], SOURCES[1:]))
        chosen = {}
        for model in self.logs.logs.values():
            if model.topic in topics:
                chosen[model.topic, model.partition] = self.rng.choice(
                    (0, 0, model.end, self.rng.randint(0, model.end))
                )
        return chosen

    def reset(self, group: str, starts: "dict[Place, int]") -> Ask:
        self.world.spark.alters = group
        try:
            request = AlterShareGroupOffsetsRequest(
                group_id=group,
                topics=[
                    AlterShareGroupOffsetsRequestTopic(
                        topic_name=topic,
                        partitions=[
                            AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=start)
                            for (name, index), start in starts.items()
                            if name == topic
                        ],
                    )
                    for topic in sorted({topic for topic, _ in starts})
                ],
            )
            response = yield from self.ask(request, 0)
        finally:
            self.world.spark.alters = None
        return response

    @staticmethod
    def codes_of(response: Any) -> "set[int] | None":
        if response is None:
            return None
        if response.error_code != ErrorCode.NONE:
            return {response.error_code}
        return {one.error_code for topic in response.responses for one in topic.partitions}

    def partitions(self) -> int:
        return self.rng.choice((1, 1, 2))

    def configs(self) -> dict[str, str]:
        return {"internal.segment.bytes": str(self.rng.choice((600, 2_000, 100_000)))}


class Source(Producer):
    """Writes to the topics of queries, with acks=all, each record once."""

    def __init__(self, world: "World", name: str) -> None:
        self._values = count(1)
        super().__init__(world, name)

    def choose_partition(self) -> tuple[str, bytes, int] | None:
        place = super().choose_partition()
        return place if place is not None and place[0] in SOURCES else None

    def live(self) -> Life:
        while True:
            place = self.choose_partition()
            if place is None:
                yield None
                continue
            values = [
                f"{self.name}.{next(self._values)}".encode()
                for _ in range(self.rng.choice((1, 1, 3, 3, 10, 30)))
            ]
            records = [NewRecord(None, value, (), self.world.clock.wall_ms()) for value in values]
            pending = self.produce(Batch(*place, values, build_batch(records), len(records)), ALL)
            self.world.transmit(self._link)
            yield pending


ACTORS: dict[str, Any] = {
    **{name: (make, 0, 0) for name, (make, _, _) in registry.ACTORS.items()},
    "admin": (SparkAdmin, 1, 1),
    "source": (Source, 1, 2),
    "sharer": (registry.ACTORS["sharer"][0], 0, 1),
}
MODELS: dict[str, Any] = {
    "path": Spark,
    **registry.MODELS,
    "logs": PathLogs,
    "share": SparkShare,
}


@dataclass
class SparkScenario(broker.Scenario):
    nodes_max: int = 0
    """Besides those of the queries."""
    slowness: float = 0.0
    """How often bytes on a wire are long on their way."""
    disk_slowness: float = 0.0
    """How often others come before an operation on a checkpoint's files."""
    modes: tuple[str, ...] = ("commit",)
    ahead: float = 0.0
    """How often a query takes records ahead, in handoff."""
    changes: float = 0.0
    """How often a query comes back with other options."""
    rashness: float = 0.0
    moods: float = 0.5
    """How often a query decides about single records."""
    groups: tuple[str, ...] = broker.SHARE_GROUPS
    doom: float = 0.0
    """How often a query is killed just after a commit, and loses files of its checkpoint."""


def scenario(rng: Random) -> SparkScenario:
    base = broker.circumstances(rng)
    settings = base.settings | {
        "headrace.flush": "fsync",
        "group.share.record.lock.duration.ms": str(rng.choice((1_000, 2_000, 5_000, 30_000))),
        "group.share.session.timeout.ms": str(rng.choice((10_000, 45_000))),
        "group.share.heartbeat.interval.ms": str(rng.choice((1_000, 5_000))),
        "group.share.delivery.count.limit": str(rng.choice((5, 10))),
        # A group that was made again is told by the snapshots of its state, until it has more of them than before.
        "share.coordinator.snapshot.update.records.per.snapshot": "500",
        "log.retention.check.interval.ms": "5000",
        "log.cleaner.backoff.ms": "5000",
    }
    haste = rng.choice((0, 0.3, 1, 1, 2))
    emphasis = {name: haste * rng.choice((0, 0.5, 1, 1, 3)) for name, step in TABLE.items() if step.is_fault}
    weights = [round(step.weight * 10 * emphasis.get(name, 1)) for name, step in TABLE.items()]
    return SparkScenario(
        settings=settings,
        journal_segment_bytes=base.journal_segment_bytes,
        share_version=base.share_version,
        is_fsync=True,
        step_names=list(TABLE),
        step_weights=list(accumulate(weights)),
        crowd={},
        slowness=rng.choice((0, 0.05, 0.2)) if haste else 0,
        disk_slowness=rng.choice((0, 0.2, 0.7)),
        modes=rng.choice((("commit",), ("handoff",), ("commit", "handoff"), ("commit", "handoff"))),
        ahead=rng.choice((0, 0, 0.5, 1)),
        changes=rng.choice((0, 0.3, 0.8)),
        rashness=rng.choice((0, 0, 0.5)),
        moods=rng.choice((0, 0.5, 1)),
        groups=rng.choice((broker.SHARE_GROUPS[:1], broker.SHARE_GROUPS)),
        doom=0.3 if haste * emphasis["lose notes"] else 0,
    )


def habits(rng: Random, scenario: SparkScenario, *, has_release: bool) -> Habits:
    allowed = (RELEASE, REJECT) if has_release else (REJECT,)
    moods = rng.choice(((), allowed[:1], allowed)) if rng.random() < scenario.moods else ()
    return Habits(
        trigger=rng.choice((DEFAULT, DEFAULT, DEFAULT, DEFAULT, ONCE, AVAILABLE_NOW)),
        has_watermark=rng.random() < 0.5,
        moods=moods,
        effort=rng.choice((0, 0.2, 0.7)),
        is_rash=rng.random() < scenario.rashness,
        kept_batches=rng.choice((2, 100, 100)),
    )
