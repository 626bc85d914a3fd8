"""Goal: groups of very many members, or of clients that say they will be some, hold up nobody else for long.

What a turn of the loop does is counted in operations, for groups of two sizes.
"""

from collections.abc import Callable

from headrace.broker.groups.classic import ClassicGroup
from headrace.broker.groups.coordinator import JOURNAL_COST, RETENTION_COST
from headrace.broker.groups.timers import EXPIRATIONS_PER_STEP
from headrace.broker.handlers import offset_commit
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.unit.broker.groups.classic_client import INITIAL_DELAY_MS, ClassicClient
from tests.unit.broker.groups.consumer_client import ConsumerClient, group_of
from tests.unit.broker.groups.fake_core import FakeCore
from tests.unit.work import operations

SESSION_MS = 45_000


def announce(core: FakeCore, count: int) -> None:
    """Each is given an id, and does not come back with it."""
    for _ in range(count):
        ClassicClient(core).ask_to_join()


def pending(core: FakeCore) -> int:
    group = core.groups.registry.get("g")
    assert isinstance(group, ClassicGroup)
    return len(group.rebalance.pending_joins)


def after(core: FakeCore, ms: int) -> list[int]:
    """The operations of each turn, until all is done that is due by then."""
    core.clock.now_ms += ms
    counts = [operations(lambda: core.timers.run_due(core.clock.now_ms))]
    while core.slices.is_pending:
        counts.append(operations(core.slices.step))
    return counts


def grows(work: Callable[[int], int], *, at_most: float) -> None:
    few, many = work(100), work(200)
    assert many < at_most * few


def test_one_more_that_is_given_an_id_costs_the_same_however_many_there_are() -> None:
    def work(count: int) -> int:
        core = FakeCore()
        announce(core, count)
        return operations(lambda: announce(core, 1))

    grows(work, at_most=1.2)


def test_those_who_never_come_with_their_ids_are_forgotten_a_few_a_turn(core: FakeCore) -> None:
    announce(core, 10 * EXPIRATIONS_PER_STEP)
    assert pending(core) == 10 * EXPIRATIONS_PER_STEP
    counts = after(core, 10_000)
    assert pending(core) == 0
    assert len(counts) == 10
    assert max(counts) < 2 * min(counts)


def test_who_leaves_or_comes_before_its_time_leaves_the_others_theirs(core: FakeCore) -> None:
    early = ClassicClient(core, session_ms=6_000)
    early.ask_to_join()
    late = ClassicClient(core, session_ms=9_000)
    answer = late.ask_to_join()
    joined = ClassicClient(core, session_ms=7_000)
    joined.join()
    late.member_id = answer.member_id
    late.leave()
    assert pending(core) == 1
    after(core, 6_000)
    assert pending(core) == 0


def test_a_rebalance_answers_each_member_with_work_that_does_not_grow_with_the_others() -> None:
    def work(count: int) -> int:
        core = FakeCore()
        answers = [ClassicClient(core, version=3).ask_to_join() for _ in range(count)]
        longest = 0
        while not answers[-1].is_done:
            longest = max(longest, *after(core, INITIAL_DELAY_MS))
        return longest

    grows(work, at_most=2.5)


def test_sessions_that_end_together_are_dealt_with_a_few_a_turn(core: FakeCore) -> None:
    core.topics.create("t", 4)
    members = 3 * EXPIRATIONS_PER_STEP
    for number in range(members):
        ConsumerClient(core, f"m{number}").join()
    core.clock.now_ms += SESSION_MS
    core.timers.run_due(core.clock.now_ms)
    assert len(group_of(core).members) == members - EXPIRATIONS_PER_STEP
    # Others come in between, and those who are still members are heard of again.
    kept = ConsumerClient(core, f"m{members - 1}")
    kept.epoch = group_of(core).members[kept.member_id].epoch
    kept.beat()
    ConsumerClient(core, "new").join()
    while core.slices.is_pending:
        core.slices.step()
    assert sorted(group_of(core).members) == [kept.member_id, "new"]
    assert core.timers.deadline_ms() is not None
    after(core, SESSION_MS)
    assert group_of(core).is_empty


def commit(core: FakeCore, group_id: str) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7)
    topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
    core.handle(offset_commit, OffsetCommitRequest(group_id=group_id, topics=topics), version=9)


def offset(core: FakeCore, group_id: str) -> int | None:
    found = core.groups.state.offsets.get(group_id, "t", 0)
    return found.offset if found is not None else None


def test_offsets_of_many_groups_expire_some_in_each_turn() -> None:
    core = FakeCore(**{"offsets.retention.minutes": 1})
    core.topics.create("t", 1)
    names = [f"g{number}" for number in range(5 * RETENTION_COST // JOURNAL_COST)]
    for name in names:
        commit(core, name)
    core.clock.now_ms += 600_000
    core.timers.run_due(core.clock.now_ms)
    left = [name for name in names if offset(core, name) is not None]
    assert len(names) // 2 < len(left) < len(names)
    # Deleted, and made again by a commit, before its turn: this is another group.
    core.groups.journal(left[0], core.groups.state.offsets.tombstones(left[0]))
    core.groups.registry.remove(left[0])
    commit(core, left[0])
    while core.slices.is_pending:
        core.slices.step()
    assert [name for name in names if offset(core, name) is not None] == left[:1]


def test_a_deleted_topic_takes_its_offsets_with_it_in_few_writes(core: FakeCore) -> None:
    core.topics.create("t", 1)
    names = [f"g{number}" for number in range(200)]
    for name in names:
        commit(core, name)
    journal = core.topics.internal("__consumer_offsets").partitions
    before = sum(len(partition.log.data) for partition in journal)
    core.topics.delete("t")
    assert sum(len(partition.log.data) for partition in journal) - before <= len(journal)
    assert [name for name in names if offset(core, name) is not None] == []
    core.check_replay()


def test_many_topics_cost_a_group_no_look_at_its_members_for_each(core: FakeCore) -> None:
    for name in ("t", "u"):
        core.topics.create(name, 1)
    for number in range(100):
        ConsumerClient(core, f"m{number}").join()
    group = group_of(core)
    group.is_stale = False
    group.forget_topic("another")
    assert operations(lambda: group.forget_topic("yet another")) < 100
    assert not group.is_stale
    ConsumerClient(core, "new", topics=["u"]).join()
    group.is_stale = False
    group.forget_topic("u")
    assert group.is_stale
