"""A query that is killed before each of its durable writes and acknowledgements in turn, once in each run.

Goal: wherever that is, each record has one effect in a sink that replaces, or one cause of a dead letter, and not both.
The micro-batch has a record that its function fails on, so that the query writes all kinds of notes: failures,
divisions, outcomes, what was settled, and what is accepted ahead.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.spark import ahead_notes, outcomes
from headrace.spark.acquirer import Acquirer
from headrace.spark.driver import Driver
from headrace.spark.outcomes import OutcomeLog
from tests.spark import test_dividing
from tests.spark.conftest import Queue, make_queue, wait_for
from tests.spark.test_dividing import Crashed, Query, everything, letters_of
from tests.spark.test_driver import Open, opened
from tests.spark.test_outcomes_on_spark import make_letters

__all__ = ["opened"]
pytestmark = pytest.mark.timeout(600)
RECORDS, BAD = 6, (1, 0)
STEPS_MIN = 15
"""A run has at least so many; more depend on how acknowledgements come together."""


class Death:
    """Ends a process at one of its steps: from then on it does nothing that lasts."""

    def __init__(self) -> None:
        self.at = 0
        self.steps = 0
        self.is_dead = False

    def begin(self, at: int) -> None:
        self.at, self.steps, self.is_dead = at, 0, False

    def step(self) -> None:
        self.steps += 1
        if self.is_dead or self.steps == self.at:
            self.is_dead = True
            raise Crashed


@pytest.fixture
def death(monkeypatch: pytest.MonkeyPatch) -> Death:
    made = Death()

    def before(owner: Any, name: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def stepping(*args: Any, **named: Any) -> Any:
            made.step()
            return original(*args, **named)

        monkeypatch.setattr(owner, name, stepping)

    before(outcomes, "write_durably")
    before(ahead_notes, "write_durably")
    before(test_dividing, "write_log")
    before(OutcomeLog, "clear")
    before(OutcomeLog, "clear_failures")
    before(Acquirer, "acknowledge")
    before(Acquirer, "copy_rejected")
    return made


class DyingQuery(Query):
    death: Death

    def start(self) -> bool:
        """A process that has died in the background does not come to its end, either."""
        is_done = super().start()
        was_dead, self.death.is_dead = self.death.is_dead, False
        return is_done and not was_dead


def kill(driver: Driver) -> None:
    """Also one that has not joined its group yet."""
    if driver._acquirer is None:
        driver.close()
    else:
        kill_joined(driver)


kill_joined = test_dividing.kill


def run_once(
    opened: Open, queue: Queue, folder: Path, death: Death, at: int, options: dict[str, object]
) -> None:
    queue.send(RECORDS)
    letters = make_letters(queue)
    query = DyingQuery(opened, queue, folder, lambda *place: place == BAD)
    query.death = death
    death.begin(at)
    query.run(**options, maxBatchFailures=1, deadLetterTopic=letters)
    rejected = letters_of(queue, letters)
    assert BAD in rejected, f"killed before step {at}"
    assert sorted([*query.effects, *rejected]) == everything(queue), f"killed before step {at}"
    wait_for(lambda: queue.lag() == 0)


@pytest.mark.parametrize("options", test_dividing.MODES, ids=["commit", "handoff", "ahead"])
def test_each_record_has_one_effect_before_whichever_write_the_query_is_killed(
    opened: Open,
    queue: Queue,
    tmp_path: Path,
    death: Death,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, object],
) -> None:
    monkeypatch.setattr(test_dividing, "kill", kill)
    at = steps = 0
    while at <= steps:
        name = f"{queue.topic}-{at}"
        own = make_queue(queue.bootstrap_servers, name, tmp_path / name)
        given: dict[str, object] = {
            "subscribe": own.topic,
            "kafka.group.id": own.group,
            "pollTimeoutMs": 1_000,
        }
        run_once(opened, own, tmp_path / name / "checkpoint", death, at, {**options, **given})
        if at == 0:
            steps = death.steps
            assert steps >= STEPS_MIN
        at += 1
