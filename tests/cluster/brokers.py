"""The nodes of a cluster by what they do: which of them leads or coordinates, and is to be killed for it."""

import time
from collections.abc import Callable

from headrace.client.admin.sync import Admin
from headrace.testing import ApacheKafka
from headrace.wire.errors import KafkaError
from tests.conformance.wire_client import WireClient

NODES = (1, 2, 3)
WAIT_S_MAX = 60.0
EVERY_S = 0.1
GROUPS, SHARE_STATE = 0, 2
"""What a coordinator is looked up for."""


def wait_until(what: str, is_so: Callable[[], bool], *, within_s: float = WAIT_S_MAX) -> None:
    began_at = time.monotonic()
    while not is_so():
        assert time.monotonic() < began_at + within_s, f"{what} within {within_s:g} s: no"
        time.sleep(EVERY_S)  # the pace of looking: brokers tell nobody when they are ready
    print(f"{what}: after {time.monotonic() - began_at:.1f} s")


class Brokers:
    """Node ids count from 1."""

    def __init__(self, kafka: ApacheKafka, admin: Admin) -> None:
        self.kafka = kafka
        self.admin = admin
        self._down: set[int] = set()

    @property
    def addresses(self) -> str:
        return self.kafka.bootstrap_servers

    def new_topic(self, name: str, partitions: int) -> None:
        """With three replicas, of which two must have a record before it counts as written."""
        self.admin.create_topic(name, partitions, replication_factor=3, configs={"min.insync.replicas": 2})

    def set_group(self, name: str, *, lock_s: float) -> None:
        """Before its first member: it reads topics from their start."""
        lock_ms = int(1000 * lock_s)
        configs = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": lock_ms}
        self.admin.set_group_config(name, configs)

    def leaders(self, topic: str) -> dict[int, int | None]:
        found = self.admin.describe_topics([topic])[topic]
        return {one.partition: one.leader for one in found.partitions}

    def group_coordinator(self, group: str) -> int:
        return self._coordinator(GROUPS, group)

    def share_coordinator(self, group: str, topic: str, partition: int) -> int:
        topic_id = self.admin.describe_topics([topic])[topic].topic_id
        return self._coordinator(SHARE_STATE, f"{group}:{topic_id}:{partition}")

    def _coordinator(self, kind: int, key: str) -> int:
        found = -1

        def look() -> bool:
            nonlocal found
            up = next(node for node in NODES if node not in self._down)
            with WireClient(self.addresses.split(",")[up - 1]) as wire:
                (answer,) = wire.ask(
                    "find_coordinator", 6, key_type=kind, coordinator_keys=[key]
                ).coordinators
            found = answer.node_id
            return bool(answer.error_code == 0)

        wait_until(f"a coordinator for {key}", look)
        return found

    def lag(self, group: str, partitions: int) -> dict[int, int]:
        """By partition; one of which nothing is written down counts as one that is not worked off."""
        offsets = self.admin.share_group_offsets(group)
        known = {one.partition: one.lag for one in offsets.values()}
        return {index: 1 if (lag := known.get(index)) is None else lag for index in range(partitions)}

    def kill(self, node: int) -> None:
        self.kafka.kill_node(node)
        self._down.add(node)

    def stop(self, node: int) -> None:
        self.kafka.stop_node(node)
        self._down.add(node)

    def start(self, node: int) -> None:
        self.kafka.start_node(node)
        self._down.discard(node)

    def mend(self) -> None:
        """Brings back what is down, and waits until every replica of every topic is in sync."""
        for node in sorted(self._down):
            self.start(node)
        wait_until("every replica is in sync", self._is_whole)

    def _is_whole(self) -> bool:
        try:
            topics = self.admin.list_topics(internal=True)
        except KafkaError:
            return False
        partitions = [one for topic in topics for one in topic.partitions]
        return all(set(one.isr) == set(one.replicas) and one.leader for one in partitions)
