"""A share-partition against a naive model with one cell per offset, and the invariants of the rules
(docs/concepts/share-semantics.md).

Method: producing, fetching, answering, waiting, closing sessions, trimming and compacting the log and restarting the
broker happen in any order; after every step engine and model must agree about every offset and the invariants must
hold (`share_trial.py`). Hypothesis looks for short stories and shrinks them; seeded walks go where only long ones lead.
"""

from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.property.share_trial import Trial

RANDOM = st.randoms(use_true_random=False)


class SharePartitionMachine(RuleBasedStateMachine):
    trial: Trial | None = None

    @initialize(random=RANDOM)
    def begin(self, random: Random) -> None:
        self.trial = Trial(random)

    @rule(
        random=RANDOM, operation=st.sampled_from(["produce", "compact", "trim", "restart", "answer_anything"])
    )
    def sometimes(self, random: Random, operation: str) -> None:
        getattr(self.trial, operation)(random)

    @rule(random=RANDOM)
    def fetch(self, random: Random) -> None:
        assert self.trial is not None
        self.trial.fetch(random)

    @rule(random=RANDOM)
    def answer(self, random: Random) -> None:
        assert self.trial is not None
        self.trial.answer(random)

    @rule(random=RANDOM, operation=st.sampled_from(["wait", "close", "copy_dead_letters"]))
    def let_go(self, random: Random, operation: str) -> None:
        getattr(self.trial, operation)(random)

    @invariant()
    def holds(self) -> None:
        if self.trial is not None:
            self.trial.check()

    def teardown(self) -> None:
        if self.trial is not None:
            self.trial.end()


TestSharePartition = SharePartitionMachine.TestCase
TestSharePartition.settings = settings(stateful_step_count=30)


@pytest.mark.parametrize("seed", range(12))
def test_a_long_walk(seed: int) -> None:
    random = Random(seed)
    trial = Trial(random)
    weights = {
        trial.fetch: 30,
        trial.answer: 30,
        trial.answer_anything: 10,
        trial.produce: 12,
        trial.wait: 6,
        trial.close: 4,
        trial.copy_dead_letters: 6,
        trial.compact: 2,
        trial.trim: 1,
        trial.restart: 2,
    }
    for operation in random.choices(list(weights), list(weights.values()), k=400):
        operation(random)
        trial.check()
    trial.end()
