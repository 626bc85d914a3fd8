"""Which member shall read which partition: the server-side assignors of KIP-848.

Pure functions of who reads what, what exists, and who had what before. Both are deterministic, so that the
same members and topics always lead to the same assignment.
"""

import heapq
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass

from headrace.wire.ids import TopicIdPartition

Assignment = dict[str, frozenset[TopicIdPartition]]
"""Partitions by member id; every member is in it."""


@dataclass(frozen=True, slots=True)
class MemberSpec:
    topic_ids: Set[bytes]
    """What it is subscribed to, among the topics that exist."""
    partitions: frozenset[TopicIdPartition] = frozenset()
    """What it was to read before."""
    instance_id: str | None = None


Members = Mapping[str, MemberSpec]
Topics = Mapping[bytes, int]
"""Partition counts by topic id."""
Assignor = Callable[[Members, Topics], Assignment]


def assign_range(members: Members, topics: Topics) -> Assignment:
    """Each topic in consecutive ranges over its subscribers, who stand in the same order for every topic.

    Topics with the same subscribers and partition count are therefore split alike: partition n of all of them goes to
    one member, which is what joins of co-partitioned topics need. Static members come first, by instance id, and so
    keep their ranges when they come back under another member id.
    """
    assigned: dict[str, set[TopicIdPartition]] = {member_id: set() for member_id in members}
    in_order = sorted(members, key=lambda member_id: _range_order(member_id, members[member_id]))
    for topic_id, partitions in topics.items():
        subscribers = [member_id for member_id in in_order if topic_id in members[member_id].topic_ids]
        if not subscribers:
            continue
        share, left_over = divmod(partitions, len(subscribers))
        first = 0
        for place, member_id in enumerate(subscribers):
            count = share + (place < left_over)
            assigned[member_id].update((topic_id, index) for index in range(first, first + count))
            first += count
    return {member_id: frozenset(partitions) for member_id, partitions in assigned.items()}


def _range_order(member_id: str, spec: MemberSpec) -> tuple[bool, str]:
    return spec.instance_id is None, member_id if spec.instance_id is None else spec.instance_id


def assign_uniform(members: Members, topics: Topics) -> Assignment:
    """As even as subscriptions allow, with as few moves from the assignment before as that takes.

    Members keep what they had; partitions nobody has go to the least loaded subscriber; then partitions move from
    members to subscribers that have at least two less, until there is no such pair. With equal subscriptions no
    two members differ by more than one partition then.
    """
    return _Uniform(members, topics).assign()


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}


class _Uniform:
    def __init__(self, members: Members, topics: Topics) -> None:
        self._members = members
        self._topics = topics
        self._held: dict[str, dict[bytes, list[int]]] = {member_id: {} for member_id in members}
        self._loads = dict.fromkeys(members, 0)
        self._taken: set[TopicIdPartition] = set()
        subscribers: dict[bytes, list[str]] = {topic_id: [] for topic_id in topics}
        for member_id in sorted(members):
            for topic_id in members[member_id].topic_ids & topics.keys():
                subscribers[topic_id].append(member_id)
        # Topics with the same subscribers share one heap of them: with equal subscriptions there is only one.
        heaps: dict[tuple[str, ...], list[tuple[int, str]]] = {}
        self._heap_of = {
            topic_id: heaps.setdefault(tuple(ids), []) for topic_id, ids in subscribers.items() if ids
        }
        self._heaps_with: dict[str, list[list[tuple[int, str]]]] = {member_id: [] for member_id in members}
        for ids, heap in heaps.items():
            for member_id in ids:
                self._heaps_with[member_id].append(heap)

    def assign(self) -> Assignment:
        self._keep()
        for member_id in self._members:
            self._set_load(member_id, self._loads[member_id])
        for topic_id in self._heap_of:
            for index in range(self._topics[topic_id]):
                if (topic_id, index) not in self._taken:
                    self._give(topic_id, index, self._least_loaded(topic_id))
        while self._balance():
            pass
        return {
            member_id: frozenset((topic_id, index) for topic_id, indexes in held.items() for index in indexes)
            for member_id, held in self._held.items()
        }

    def _keep(self) -> None:
        for member_id in sorted(self._members):
            spec = self._members[member_id]
            for topic_id, index in sorted(spec.partitions):
                is_there = index < self._topics.get(topic_id, 0) and topic_id in spec.topic_ids
                if is_there and (topic_id, index) not in self._taken:
                    self._taken.add((topic_id, index))
                    self._held[member_id].setdefault(topic_id, []).append(index)
                    self._loads[member_id] += 1

    def _balance(self) -> bool:
        """Lets each member, the most loaded first, hand over one partition. False: none can be any more.

        One each in turn: the loads of those who had partitions before stay even among each other, so that what moves
        goes to members with too few, and never from one old member to another. Each move makes the loads more even,
        so this comes to an end.
        """
        has_moved = False
        enough = min(self._loads.values(), default=0) + 1
        owners = [member_id for member_id, load in self._loads.items() if load > enough]
        for owner in sorted(owners, key=lambda member_id: (-self._loads[member_id], member_id)):
            for topic_id, indexes in self._held[owner].items():
                if self._loads[self._least_loaded(topic_id)] + 1 < self._loads[owner]:
                    index = indexes.pop()
                    if not indexes:
                        del self._held[owner][topic_id]
                    self._set_load(owner, self._loads[owner] - 1)
                    self._give(topic_id, index, self._least_loaded(topic_id))
                    has_moved = True
                    break
        return has_moved

    def _give(self, topic_id: bytes, index: int, member_id: str) -> None:
        self._held[member_id].setdefault(topic_id, []).append(index)
        self._set_load(member_id, self._loads[member_id] + 1)

    def _set_load(self, member_id: str, load: int) -> None:
        self._loads[member_id] = load
        for heap in self._heaps_with[member_id]:
            heapq.heappush(heap, (load, member_id))

    def _least_loaded(self, topic_id: bytes) -> str:
        heap = self._heap_of[topic_id]
        while heap[0][0] != self._loads[heap[0][1]]:
            heapq.heappop(heap)  # an entry from before its load changed
        return heap[0][1]
