"""Random Spark against the real driver and our broker: plan, log, decide, commit; stop, kill, wake up late, lose locks.

A game is a query's life of forty steps with a checkpoint of its own; then it is calm until nothing is left. Every
record must be in a committed micro-batch, in more than one only if it was released in all but the last, and the group
must have nothing left. The seed is in the test's name, so a game that fails can be played again.
"""

import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Broker
from headrace.client.delivery import AcknowledgeType
from headrace.spark.driver import Driver
from headrace.spark.offset import AcquiredOffset
from headrace.spark.options import SourceOptions
from headrace.spark.outcomes import Outcome, OutcomeLog
from headrace.wire.ids import TopicAndPartition
from tests.spark.conftest import GROUP_SETTINGS, Queue, make_queue
from tests.spark.test_driver import initial, kill, write_log

pytestmark = pytest.mark.timeout(180)
RECORDS, RECORDS_PER_BATCH = 60, 20
STEPS, STEPS_MAX = 40, 120
DELIVERIES = 10
LOCK_S = 31
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


class Game:
    """Spark, its checkpoint, and the drivers of the query: the one that lives, and those that wake up late."""

    def __init__(self, broker: Broker, queue: Queue, mode: str, seed: int) -> None:
        self.broker, self.queue, self.mode = broker, queue, mode
        self.chance = random.Random(seed)
        self.checkpoint = Path(queue.checkpoint)
        self.driver: Driver | None = None
        self.late: list[Driver] = []
        self.log: list[dict[str, Any]] = []
        self.committed = 0
        self.decided: list[dict[tuple[TopicAndPartition, int], AcknowledgeType]] = []
        self.history: list[str] = []

    def play(self) -> None:
        step = idle = 0
        while step < STEPS or idle < 3:
            step += 1
            assert step < STEPS_MAX, self.history
            self.is_calm = step >= STEPS
            idle = idle + 1 if self.step() else 0
        while self.late:
            self.late.pop().close()
        if self.driver is not None:
            self.driver.close()

    def step(self) -> bool:
        """Whether there was nothing to do."""
        if self.late and (self.is_calm or self.happens(0.5)):
            self.late.pop().close()
        if self.happens(0.1):
            self.note("locks end")
            self.broker.advance(LOCK_S)
        driver = self.driver or self.start()
        if self.happens(0.15):
            return self.end()
        if self.committed == len(self.log):
            start = self.log[-1] if self.log else initial(self.queue)
            end = driver.latest(start, RECORDS_PER_BATCH)
            if end == start:
                return True
            self.note(f"plan {AcquiredOffset.from_json(end).batch.record_count}")
            if self.happens(0.25):
                return self.end()
            write_log(self.checkpoint, "offsets", len(self.log), end)
            self.log.append(end)
            if self.happens(0.15):
                return self.end()
            driver.log(end)
        if self.happens(0.2):
            return self.end()
        outcomes = self.decide()
        if self.happens(0.1):
            return self.end()
        self.decided.append(outcomes)
        write_log(self.checkpoint, "commits", self.committed, {})
        self.committed += 1
        self.note("commit")
        return self.end() if self.happens(0.2) else False

    def start(self) -> Driver:
        given = {
            "kafka.bootstrap.servers": self.queue.bootstrap_servers,
            "subscribe": self.queue.topic,
            "kafka.group.id": self.queue.group,
            "startingOffsets": "earliest",
            "acknowledge": "handoff" if self.mode == "ahead" else self.mode,
            "maxRecordsAhead": "30" if self.mode == "ahead" else "0",
            "checkpointLocation": self.queue.checkpoint,
            "maxRecordsPerTrigger": str(RECORDS_PER_BATCH),
            "pollTimeoutMs": "300",
        }
        self.driver = Driver(SourceOptions.parse(given))
        if self.committed < len(self.log):
            self.note("replay")
            self.driver.log(self.log[-1])
        return self.driver

    def end(self) -> bool:
        """The reader is killed, stops in an orderly way, or lives on beside its successor for a while."""
        driver, self.driver = self.driver, None
        assert driver is not None
        # Who accepts ahead has its log for itself: a successor waits until it has closed.
        how = self.chance.choice(("kill", "stop") if self.mode == "ahead" else ("kill", "stop", "late"))
        self.note(how)
        if how == "late":
            self.late.append(driver)
        elif how == "stop" or driver._acquirer is None:
            driver.close()
        else:
            kill(driver)
        return False

    def decide(self) -> dict[tuple[TopicAndPartition, int], AcknowledgeType]:
        """What the micro-batch decides of its records, written down as `process` does it."""
        chosen: dict[tuple[TopicAndPartition, int], AcknowledgeType] = {}
        outcomes = []
        if self.mode == "commit":
            for place, run in AcquiredOffset.from_json(self.log[-1]).batch:
                for offset in range(run.first, run.last + 1):
                    may_release = run.delivery_count < DELIVERIES // 2
                    type = self.chance.choices((ACCEPT, REJECT, RELEASE), (8, 1, 1 if may_release else 0))[0]
                    if type is not ACCEPT:
                        chosen[place, offset] = type
                        outcomes.append(Outcome(*place, offset, offset, run.delivery_count, type, "chance"))
            OutcomeLog(self.checkpoint / "share-outcomes").write(len(self.log) - 1, outcomes)
        return chosen

    def happens(self, probability: float) -> bool:
        return not self.is_calm and self.chance.random() < probability

    def note(self, what: str) -> None:
        self.history.append(what)

    def effects(self) -> dict[tuple[TopicAndPartition, int], list[AcknowledgeType]]:
        """For each record, what became of it in each micro-batch that holds it."""
        found: dict[tuple[TopicAndPartition, int], list[AcknowledgeType]] = defaultdict(list)
        for offset, outcomes in zip(self.log, self.decided, strict=True):
            for place, run in AcquiredOffset.from_json(offset).batch:
                for at in range(run.first, run.last + 1):
                    found[place, at].append(outcomes.get((place, at), ACCEPT))
        return found


@pytest.fixture
def own_broker() -> Iterator[Broker]:
    with Broker(settings={**GROUP_SETTINGS, "group.share.max.delivery.count.limit": DELIVERIES}) as running:
        yield running


@pytest.mark.parametrize(
    "seed", [3, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(5, 9))]
)
@pytest.mark.parametrize("mode", ["commit", "handoff", "ahead"])
def test_every_record_has_one_effect_in_a_game_of_chance(
    own_broker: Broker, unique: str, tmp_path: Path, mode: str, seed: int
) -> None:
    queue = make_queue(own_broker.bootstrap_servers, unique, tmp_path)
    queue.send(RECORDS)
    with queue.admin() as admin:
        admin.set_group_config(queue.group, {"share.delivery.count.limit": DELIVERIES})
    game = Game(own_broker, queue, mode, seed)
    game.play()
    effects = game.effects()
    assert len(effects) == RECORDS, f"missing, after {game.history}"
    twice = [outcomes for outcomes in effects.values() if set(outcomes[:-1]) - {RELEASE}]
    assert not twice, game.history
    assert not [outcomes for outcomes in effects.values() if outcomes[-1] is RELEASE], game.history
    assert queue.lag() == 0, game.history
