"""Goal: consumers wait for a cluster that is away without hurry, and go on by themselves when it is back.

Method: all nodes are killed and started again under consumers that hold records and poll all the time. How often they
try to connect, how often they look around, and how much they write to the log, is counted meanwhile.
"""

import pytest

from tests.chaos.haste import Haste
from tests.cluster.brokers import NODES, Brokers, wait_until
from tests.cluster.crew import MEMBERS, PARTITIONS, at_work

pytestmark = [pytest.mark.needs_kafka, pytest.mark.timeout(300)]


def test_consumers_outlast_a_cluster_that_is_away(
    brokers: Brokers, unique: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    haste = Haste(monkeypatch, caplog, members=len(MEMBERS), brokers=len(NODES))
    brokers.new_topic(unique, PARTITIONS)
    with at_work(brokers, unique) as crew:
        haste.begin()
        brokers.kafka.kill()
        wait_until("everybody tries again", lambda: haste.has_everybody_tried_again)
        brokers.kafka.start()
        haste.check()
        crew.wait_until_all_work()
