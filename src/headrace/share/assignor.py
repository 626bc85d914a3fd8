"""The simple assignor: which members of a share group fetch from which partitions.

Partitions may be shared, so there is nothing to hand over: with more members than partitions each partition is given to
several, with fewer each member gets several. Balance comes first, keeping what a member has second. Racks play no part.
"""

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from headrace.share.session import PartitionKey

Assignment: TypeAlias = Mapping[bytes, tuple[int, ...]]
"""Partition indexes by topic id, ascending."""


def assign(
    members: Mapping[str, Collection[bytes]],
    partitions: Mapping[bytes, Collection[int]],
    current: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    """Gives every partition that somebody subscribes to, to at least one member.

    `members` maps each member to the topics (ids) it subscribes to, `partitions` each topic to what can be assigned of
    it, `current` each member to what it was assigned before.
    """
    held = {member: set(flatten(current.get(member, {}))) for member in members}
    wanted = {frozenset(topics) for topics in members.values()}
    assigned: dict[str, set[PartitionKey]] = {member: set() for member in members}
    # With equal subscriptions all topics are balanced as one pool, else each topic on its own, over its subscribers.
    pools = [wanted.pop()] if len(wanted) == 1 else [{topic} for topic in sorted(set().union(*wanted))]
    for topics in pools:
        pool = [(topic, index) for topic in sorted(topics) for index in sorted(partitions.get(topic, ()))]
        subscribers = [member for member, own in members.items() if topics <= set(own)]
        for member, share in _balance(subscribers, pool, held).items():
            assigned[member] |= share
    return {member: by_topic(share) for member, share in assigned.items()}


def flatten(assignment: Assignment) -> Iterable[PartitionKey]:
    return ((topic, index) for topic, indexes in assignment.items() for index in indexes)


def by_topic(partitions: Iterable[PartitionKey]) -> Assignment:
    assignment: dict[bytes, tuple[int, ...]] = {}
    for topic, index in sorted(partitions):
        assignment[topic] = (*assignment.get(topic, ()), index)
    return assignment


def _balance(
    members: Collection[str], pool: list[PartitionKey], held: Mapping[str, set[PartitionKey]]
) -> dict[str, set[PartitionKey]]:
    """Shares out a pool of partitions among members that all subscribe to all of it."""
    if not members or not pool:
        return {}
    sharing = -(-len(members) // len(pool))  # by how many members each partition should be held
    holders = dict.fromkeys(pool, 0)
    # Larger quotas go to members that hold more already: less has to move.
    kept = {member: held[member] & holders.keys() for member in members}
    ranked = sorted(members, key=lambda member: (-len(kept[member]), member))
    slots = sharing * len(pool)
    shares: dict[str, set[PartitionKey]] = {}
    room: dict[str, int] = {}
    for rank, member in enumerate(ranked):
        quota = -(-slots * (rank + 1) // len(ranked)) + (-slots * rank // len(ranked))
        shares[member] = set()
        for partition in sorted(kept[member]):
            if len(shares[member]) < quota and holders[partition] < sharing:
                shares[member].add(partition)
                holders[partition] += 1
        room[member] = quota - len(shares[member])
    _fill(shares, room, holders, sharing)
    return shares


def _fill(
    shares: dict[str, set[PartitionKey]],
    room: dict[str, int],
    holders: Mapping[PartitionKey, int],
    sharing: int,
) -> None:
    """Hands partitions that too few hold to members below their quota, in turn."""
    waiting = deque(member for member in shares if room[member])
    for partition, count in sorted(holders.items(), key=lambda item: item[1]):
        missing = sharing - count
        for _ in range(len(waiting)):
            if not missing:
                break
            member = waiting.popleft()
            if partition not in shares[member]:
                shares[member].add(partition)
                room[member] -= 1
                missing -= 1
            if room[member]:
                waiting.append(member)
