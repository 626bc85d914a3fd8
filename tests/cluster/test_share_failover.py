"""Goal: whatever happens to single brokers, our share consumers lose nothing and accept nothing twice.

Method: consumers of every kind on one queue, a steady stream, three nodes; the history of what everybody saw is judged
as that of the chaos tests is. A record whose accept was confirmed is never delivered again; one whose accept has an
unknown outcome may be.
"""

from itertools import count

import pytest

from tests.cluster.brokers import NODES, Brokers
from tests.cluster.crew import PARTITIONS, at_work

pytestmark = [pytest.mark.needs_kafka, pytest.mark.timeout(300)]


@pytest.fixture
def topic(brokers: Brokers, unique: str) -> str:
    brokers.new_topic(unique, PARTITIONS)
    return unique


def test_the_leader_of_a_partition_is_killed_and_comes_back(brokers: Brokers, topic: str) -> None:
    with at_work(brokers, topic) as crew:
        leader = brokers.leaders(topic)[0]
        assert leader is not None
        brokers.kill(leader)
        crew.wait_until_all_work()
        assert brokers.leaders(topic)[0] != leader
        brokers.mend()
        crew.wait_until_all_work()


def test_the_coordinator_of_a_group_and_of_its_state_is_killed(brokers: Brokers, topic: str) -> None:
    group = next(
        name
        for name in (f"{topic}-{number}" for number in count())
        if brokers.group_coordinator(name) == brokers.share_coordinator(name, topic, 0)
    )
    with at_work(brokers, topic, group) as crew:
        node = brokers.group_coordinator(group)
        brokers.kill(node)
        crew.wait_until_all_work()
        assert brokers.group_coordinator(group) != node


def test_all_brokers_are_rolled(brokers: Brokers, topic: str) -> None:
    with at_work(brokers, topic) as crew:
        for node in NODES:
            brokers.stop(node)
            crew.wait_until_all_work()
            brokers.mend()
        crew.wait_until_all_work()
