"""A life with Spark: queries on machines of their own, their checkpoints, and the broker, under one clock."""

import zlib
from collections.abc import Collection
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.actors.share_members import ShareMember
from tests.simulation.path.model import DEAD_LETTERS
from tests.simulation.path.world import PathWorld
from tests.simulation.scenario import TOPICS
from tests.simulation.spark import environment
from tests.simulation.spark.files import Files
from tests.simulation.spark.model import SOURCES, Spark
from tests.simulation.spark.node import SparkNode
from tests.simulation.spark.query import Habits, Lineage, Run
from tests.simulation.spark.scenario import ACTORS, MODELS, SparkAdmin, SparkScenario, habits, scenario
from tests.simulation.spark.steps import TABLE, end_doomed

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario


class SparkWorld(PathWorld):
    actor_table = ACTORS
    model_table = MODELS
    step_table = TABLE
    scenario: SparkScenario

    def __init__(self, seed: int, *, is_recorded: bool = False) -> None:
        environment.install()
        self.files = Files()
        self.chance = Random(f"notes and bad records {seed}")
        """Of what was added later: so the lives of other seeds stay as they are."""
        self.failures_max = self.chance.choice((0, 0, 1, 2))
        """Option maxBatchFailures; 0 where there are no bad records."""
        self.bad_every = self.chance.choice((5, 20, 60))
        super().__init__(seed, is_recorded=is_recorded)
        environment.begin(self)
        self.has_sharers = any(isinstance(actor, ShareMember) for actor in self.actors)
        self._make_topics()

    def _make_topics(self) -> None:
        """So that queries can begin."""
        admin = next(actor for actor in self.actors if isinstance(actor, SparkAdmin))
        self.is_calm = True
        for _ in TOPICS:
            admin.step()
            self.settle()
        self.is_calm = False

    def make_scenario(self, rng: Random) -> "Scenario":
        return scenario(rng)

    def step(self, number: int) -> None:
        super().step(number)
        end_doomed(self)

    def run(self, steps: int, kept: Collection[int] | None = None) -> None:
        try:
            super().run(steps, kept)
        finally:
            for node in [*self.nodes]:
                node.die()
            for node in [*self.nodes, *self.graves]:
                assert isinstance(node, SparkNode)
                node.loop.close_tasks()
            self.files.remove()

    @property
    def spark(self) -> Spark:
        return self.model(Spark)

    @property
    def has_reported(self) -> bool:
        return self._reported is not None

    def is_bad(self, value: bytes) -> bool:
        """Whether the user's function fails on a record. In the end somebody has mended it."""
        return self.failures_max > 0 and not self.is_calm and zlib.crc32(value) % self.bad_every == 0

    def disk_ms(self) -> int | None:
        """How long an operation on a checkpoint's files takes; None when nothing comes before it."""
        if self.is_calm or self.rng.random() >= self.scenario.disk_slowness:
            return None
        return self.rng.choice((0, 0, 0, 1, 5, 300))

    def start_node(self) -> None:
        """Queries are started by steps."""

    def add_node(self, kind: str) -> SparkNode:
        self._node_numbers += 1
        node = SparkNode(self, f"{kind}{self._node_numbers}")
        self.nodes.append(node)
        return node

    # Queries

    def new_lineage(self, group: str, sources: list[tuple[str, ...]] | None = None) -> Lineage:
        name = f"query{len(self.spark.lineages)}"
        if sources is None:
            choices: tuple[list[tuple[str, ...]], ...] = (
                [SOURCES], [SOURCES[:1]], [SOURCES[1:]], [SOURCES[:1], SOURCES[1:]],
            )  # fmt: skip
            sources = list(self.rng.choice(choices))
        lineage = Lineage(name, group, self.files.root / name, sources)
        lineage.wants_letters = self.rng.random() < 0.7
        self.spark.lineages.append(lineage)
        return lineage

    def start_run(self, lineage: Lineage, chosen: Habits | None = None) -> Run:
        rng, scenario = self.rng, self.scenario
        is_changed = not lineage.options or rng.random() < scenario.changes
        if is_changed:
            self._choose_options(lineage)
        letters = lineage.needs_letters or lineage.wants_letters
        if letters and DEAD_LETTERS not in self.spark.logs.topics:
            letters = False
        lineage.always_letters = lineage.always_letters and letters
        if lineage.sources not in lineage.past_sources:
            lineage.past_sources.append(list(lineage.sources))
        given = []
        for topics in lineage.sources:
            options = {
                **lineage.options,
                "kafka.bootstrap.servers": "127.0.0.1:9092",
                "kafka.group.id": lineage.group,
                "subscribe": ",".join(topics),
                "startingOffsets": "earliest",
                "checkpointLocation": str(lineage.folder),
            }
            if letters:
                options["deadLetterTopic"] = DEAD_LETTERS
                options["maxBatchFailures"] = str(self.failures_max)
            if lineage.has_lost_data:
                options["failOnDataLoss"] = "false"
            given.append(options)
        lineage.is_doomed = lineage.is_doomed or self.chance.random() < scenario.doom
        has_release = lineage.options["acknowledge"] == "commit" or rng.random() < scenario.rashness
        run_habits = habits(rng, scenario, has_release=has_release) if chosen is None else chosen
        self.trail.note(f"{lineage.name} starts {sorted(lineage.options.items())} {run_habits}")
        return Run(self, lineage, given, run_habits)

    def _choose_options(self, lineage: Lineage) -> None:
        rng, scenario = self.rng, self.scenario
        mode = rng.choice(scenario.modes)
        lineage.options = {
            "acknowledge": mode,
            "pollTimeoutMs": str(rng.choice((0, 100, 500))),
            "kafkaConsumer.pollTimeoutMs": str(rng.choice((5_000, 20_000))),
            "kafka.default.api.timeout.ms": str(rng.choice((5_000, 20_000))),
            "kafka.request.timeout.ms": str(rng.choice((2_000, 5_000))),
            "minPartitions": str(rng.choice((1, 1, 2, 4))),
        }
        if mode == "handoff" and rng.random() < scenario.ahead:
            lineage.options["maxRecordsAhead"] = str(rng.choice((1, 10, 1_000)))
        elif mode == "handoff" and rng.random() < 0.5:
            lineage.options["maxRecordsAhead"] = (
                "0"  # else it takes ahead when the window bounds a quick query
            )
        if rng.random() < 0.5:
            lineage.options["maxRecordsPerTrigger"] = str(rng.choice((1, 3, 20)))
        if rng.random() < 0.2:
            lineage.wants_letters = not lineage.wants_letters
        if len(lineage.sources) == 1 and lineage.runs and not self.is_calm and rng.random() < 0.3:
            lineage.sources = [rng.choice((SOURCES, SOURCES[:1], SOURCES[1:]))]
