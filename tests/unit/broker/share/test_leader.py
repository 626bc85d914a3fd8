"""The share-partition leader on a real core in memory: what members are handed, and what their answers do."""

from contextlib import closing
from pathlib import Path

import pytest

from headrace.broker.call import Call
from headrace.broker.later import Later
from headrace.broker.topics import Topic
from headrace.log.memory_disk import MemoryDisk
from headrace.log.reading import LogReader
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from headrace.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest
from headrace.wire.messages.share_acknowledge_response import ShareAcknowledgeResponse
from headrace.wire.messages.share_fetch_response import ShareFetchResponse
from headrace.wire.records import NewRecord, build_batch
from headrace.wire.share_state import ShareKey
from tests.unit.broker.share.bench import (
    ACCEPT,
    GROUP,
    REJECT,
    RELEASE,
    RENEW,
    Bench,
    Member,
    acquired,
    partition,
    values,
)
from tests.unit.log.logs import delete_records
from tests.unit.work import operations


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_two_members_share_a_partition_without_overlap(bench: Bench) -> None:
    topic = bench.topic()
    bench.produce(topic, 20)
    first, second = Member(bench, "a"), Member(bench, "b", connection_id=2)
    response = first.fetch(topic, records_max=6, batch_size=2)
    assert acquired(response) == [(0, 4, 1), (5, 9, 1)]
    assert values(response) == [b"v%d" % offset for offset in range(10)]
    assert second.take(topic, records_max=100) == [(10, 19, 1)]


def test_where_share_groups_are_turned_off_nothing_is_fetched_or_acknowledged(bench: Bench) -> None:
    topic = bench.topic()
    bench.produce(topic, 20)
    member = Member(bench, "a")
    assert member.take(topic) == [(0, 19, 1)]
    bench.core.features.finalize({"share.version": 0})
    refused = bench.core.handle(
        ShareAcknowledgeRequest(group_id=GROUP, member_id="a", share_session_epoch=1), Call(api_version=2)
    )
    assert isinstance(refused, ShareAcknowledgeResponse)
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert member.fetch(topic, epoch=1).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_member_that_wants_no_records_gets_the_ranges_and_their_size(bench: Bench) -> None:
    topic = bench.topic()
    bench.produce(topic, 20)
    reader, member = Member(bench, "a"), Member(bench, "b", connection_id=2)
    with_records = partition(reader.fetch(topic))
    assert with_records.acquired_bytes == 0
    reader.settle(topic, (0, 19, RELEASE))
    response = member.fetch(topic, acquire_only=True)
    assert acquired(response) == [(0, 19, 2)]
    assert partition(response).records == b""
    assert partition(response).acquired_bytes == len(with_records.records)
    assert member.settle(topic, (0, 19, ACCEPT)) == 0


def test_an_accepted_record_is_never_delivered_again(bench: Bench) -> None:
    topic = bench.topic()
    bench.produce(topic, 10)
    member = Member(bench, "a")
    assert member.take(topic) == [(0, 9, 1)]
    assert member.settle(topic, (0, 4, ACCEPT), (5, 9, RELEASE)) == 0
    assert member.take(topic) == [(5, 9, 2)]
    assert member.settle(topic, (0, 4, ACCEPT)) == 0


def test_a_lock_that_runs_out_gives_the_records_to_who_waits(bench: Bench) -> None:
    topic = bench.topic()
    bench.produce(topic, 5)
    holder, waiting = Member(bench, "a"), Member(bench, "b", connection_id=2)
    assert holder.take(topic) == [(0, 4, 1)]
    parked = waiting.ask_fetch(topic, wait_ms=60_000)
    assert isinstance(parked, Later)
    bench.advance(29)
    assert not parked.is_done
    bench.advance(2)
    assert acquired(parked.value) == [(0, 4, 2)]
    assert holder.settle(topic, (0, 4, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE


def test_an_answer_that_overtakes_its_timer_is_still_too_late(bench: Bench) -> None:
    topic = bench.topic()
    bench.produce(topic, 5)
    member = Member(bench, "a")
    member.take(topic)
    bench.clock.advance(30)
    assert member.settle(topic, (0, 4, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE


def test_a_renewed_lock_lasts_its_full_time_again(bench: Bench) -> None:
    topic = bench.topic()
    bench.produce(topic, 5)
    member = Member(bench, "a")
    member.take(topic)
    bench.advance(20)
    assert member.settle(topic, (0, 4, RENEW), is_renew=True) == 0
    bench.advance(20)
    assert member.settle(topic, (0, 4, ACCEPT)) == 0


def test_a_parked_fetch_wakes_when_records_are_produced(bench: Bench) -> None:
    topic = bench.topic()
    member = Member(bench, "a")
    parked = member.ask_fetch(topic, wait_ms=60_000)
    assert isinstance(parked, Later)
    bench.produce(topic, 3, per_batch=3)
    assert acquired(parked.value) == [(0, 2, 1)]


def test_a_topic_that_is_deleted_under_a_parked_fetch_is_an_error_of_its_own(bench: Bench) -> None:
    """As from Kafka 4.4 on (KAFKA-20533): at once, and the other topics of the session stay in it."""
    gone, kept = bench.topic("gone"), bench.topic("kept")
    member = Member(bench, "a")
    member.fetch(gone)
    member.fetch(kept)
    parked = member.ask_fetch(kept, wait_ms=60_000)
    assert isinstance(parked, Later)
    assert not parked.is_done
    bench.core.topics.delete("gone")
    bench.core.settle()
    assert codes(parked.value) == {gone.id: ErrorCode.UNKNOWN_TOPIC_ID}
    bench.produce(kept, 2)
    after = member.fetch(kept)
    assert codes(after) == {gone.id: ErrorCode.UNKNOWN_TOPIC_ID, kept.id: 0}
    [of_kept] = [topic.partitions[0] for topic in after.responses if topic.topic_id == kept.id]
    assert [(one.first_offset, one.last_offset) for one in of_kept.acquired_records] == [(0, 1)]


def codes(response: ShareFetchResponse) -> dict[bytes, int]:
    """The error of each topic's only partition."""
    assert response.error_code == 0
    return {topic.topic_id: topic.partitions[0].error_code for topic in response.responses}


def test_a_fetch_that_finds_nothing_answers_when_its_time_is_up(bench: Bench) -> None:
    topic = bench.topic()
    member = Member(bench, "a")
    parked = member.ask_fetch(topic, wait_ms=500)
    assert isinstance(parked, Later)
    bench.advance(0.6)
    assert partition(parked.value) is not None
    again = member.ask_fetch(topic, wait_ms=500)
    assert isinstance(again, Later)
    bench.advance(0.6)
    assert again.value.responses == []


def test_a_closed_connection_gives_back_what_its_members_held(bench: Bench) -> None:
    topic = bench.topic()
    bench.produce(topic, 5)
    gone, other = Member(bench, "a"), Member(bench, "b", connection_id=2)
    gone.take(topic)
    assert other.take(topic) == []
    for told in bench.core.on_disconnect:
        told(1)
    assert other.take(topic) == [(0, 4, 2)]


def test_closing_a_session_settles_first_and_releases_the_rest(bench: Bench) -> None:
    topic = bench.topic()
    bench.produce(topic, 10)
    member, other = Member(bench, "a"), Member(bench, "b", connection_id=2)
    member.take(topic)
    assert member.acknowledge(topic, (0, 4, ACCEPT), epoch=-1).error_code == 0
    assert other.take(topic) == [(5, 9, 2)]
    assert member.acknowledge(topic, epoch=3).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_group_whose_members_have_closed_and_gone_is_unloaded_and_goes_on_later(bench: Bench) -> None:
    topic = bench.topic()
    bench.produce(topic, 10)
    member, other = Member(bench, "a"), Member(bench, "b", connection_id=2)
    member.take(topic, records_max=5)
    other.take(topic)
    leader = bench.core.share_leader
    for one in (member, other):
        one.acknowledge(topic, epoch=-1)
    for told in bench.core.on_disconnect:
        told(3)
        assert len(leader.loaded(GROUP)) == 1, "the connections of its members are still there"
        told(1)
        told(2)
    assert leader.loaded(GROUP) == []
    assert leader._left == {}
    assert not [sample for sample in bench.core.metrics.snapshot() if "partition" in sample.labels]
    assert Member(bench, "c", connection_id=4).take(topic) == [(0, 9, 2)]


def test_nothing_is_counted_for_a_group_that_was_deleted(bench: Bench) -> None:
    bench.core.metrics.count("DeadLetterQueueRecordCount", group=GROUP)
    bench.core.share_leader.forget_group(GROUP)
    assert not [sample for sample in bench.core.metrics.snapshot() if sample.labels.get("group") == GROUP]


def test_a_parked_fetch_that_fails_is_answered(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = bench.topic()
    failures: list[Exception] = []
    parked = Member(bench, "a").ask_fetch(topic, wait_ms=60_000)
    assert isinstance(parked, Later)
    parked.then(lambda _: None, failures.append)

    def broken(*_: object, **__: object) -> None:
        raise OSError("input/output error")

    monkeypatch.setattr(LogReader, "read", broken)
    bench.produce(topic, 1)
    assert [str(error) for error in failures] == ["input/output error"]
    assert len(bench.core.parked) == 0


def test_records_past_the_delivery_limit_are_archived(bench: Bench) -> None:
    topic = bench.topic()
    bench.configure(share_delivery_count_limit="2")
    bench.produce(topic, 5)
    member = Member(bench, "a")
    for count in (1, 2):
        assert member.take(topic) == [(0, 4, count)]
        assert member.settle(topic, (0, 4, RELEASE)) == 0
    assert member.take(topic) == []


def test_the_window_bounds_what_is_in_flight(bench: Bench) -> None:
    topic = bench.topic()
    bench.configure(share_partition_max_record_locks="100")
    bench.produce(topic, 210, per_batch=7)
    member = Member(bench, "a")
    assert member.take(topic, batch_size=1000) == [(0, 104, 1)]
    assert member.take(topic) == []
    assert member.settle(topic, (0, 6, ACCEPT)) == 0
    assert member.take(topic) == [(105, 111, 1)]
    assert member.settle(topic, (50, 56, ACCEPT)) == 0
    assert member.take(topic) == []
    assert member.settle(topic, (60, 62, RELEASE)) == 0
    assert member.take(topic) == [(60, 62, 2)]


def test_deleted_records_are_passed_over(bench: Bench) -> None:
    topic = bench.topic()
    bench.produce(topic, 10)
    member = Member(bench, "a")
    assert member.take(topic, records_max=5) == [(0, 4, 1)]
    delete_records(topic.partitions[0].log, 7)
    assert member.take(topic) == []
    assert member.take(topic) == [(7, 9, 1)]
    assert member.settle(topic, (0, 4, ACCEPT)) == 0


def test_what_was_settled_outlives_a_restart_and_the_rest_is_delivered_again(tmp_path: object) -> None:
    bench = Bench(metadata=tmp_path / "metadata.sqlite")  # type: ignore[operator]
    topic = bench.topic()
    bench.produce(topic, 10)
    member = Member(bench, "a")
    member.take(topic)
    assert member.settle(topic, (5, 5, ACCEPT), (6, 6, RELEASE), (7, 7, ACCEPT)) == 0
    bench.restart()
    again = bench.core.topics.get("orders")
    assert again is not None
    fresh = Member(bench, "b")
    assert fresh.take(again, batch_size=1) == [(0, 4, 1), (6, 6, 2), (8, 9, 1)]


def test_an_outdated_copy_of_the_state_is_dropped(bench: Bench) -> None:
    topic = bench.topic()
    bench.produce(topic, 10)
    member = Member(bench, "a")
    member.take(topic)
    bench.core.share_state.initialize(ShareKey("g", topic.id, 0), state_epoch=2, start_offset=3)
    assert member.settle(topic, (0, 4, ACCEPT)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert member.take(topic) == [(3, 9, 1)]


def alter(bench: Bench, topic: Topic, offset: int, index: int = 0) -> None:
    one = AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
    asked = AlterShareGroupOffsetsRequestTopic(topic_name=topic.name, partitions=[one])
    request = AlterShareGroupOffsetsRequest(group_id=GROUP, topics=[asked])
    answer = bench.core.handle(request, Call(api_version=0))
    assert isinstance(answer, Later)
    assert answer.value.responses[0].partitions[0].error_code == 0


@pytest.mark.parametrize("end", ["by time", "by disconnect"])
def test_a_reset_is_not_undone_when_older_locks_end(bench: Bench, end: str) -> None:
    topic = bench.topic()
    bench.produce(topic, 20)
    alter(bench, topic, 10)
    holder = Member(bench, "a")
    assert holder.take(topic) == [(10, 19, 1)]
    assert holder.settle(topic, (10, 14, ACCEPT)) == 0
    alter(bench, topic, 0)
    if end == "by time":
        bench.advance(31)
    else:
        for disconnected in bench.core.on_disconnect:
            disconnected(holder.connection_id)
    stored = bench.core.share_state.read(ShareKey(GROUP, topic.id, 0), -1)
    assert (stored.start_offset, [*stored.merged()]) == (0, [])
    assert Member(bench, "b", connection_id=2).take(topic) == [(0, 19, 1)]


def test_a_reset_of_one_partition_leaves_the_locks_of_the_others(bench: Bench) -> None:
    topic = bench.topic(partitions=2)
    bench.produce(topic, 5)
    holder = Member(bench, "a")
    assert holder.take(topic) == [(0, 4, 1)]
    alter(bench, topic, 0, index=1)
    assert holder.settle(topic, (0, 4, ACCEPT)) == 0


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_a_group_that_begins_at_the_end_is_not_moved_on_by_a_restart(tmp_path: Path, is_clean: bool) -> None:
    bench = Bench(MemoryDisk(is_simulated=True), tmp_path / "metadata.sqlite")
    topic = bench.topic()
    bench.configure(share_auto_offset_reset="latest")
    bench.produce(topic, 5)
    assert Member(bench, "a").take(topic) == []
    bench.produce(topic, 5)
    bench.restart(clean=is_clean)
    bench.configure(share_auto_offset_reset="latest")
    found = bench.core.topics.get("orders")
    assert found is not None
    assert Member(bench, "b").take(found) == [(5, 9, 1)]


def test_a_group_that_begins_at_the_end_is_not_moved_on_when_its_members_go(bench: Bench) -> None:
    topic = bench.topic()
    bench.configure(share_auto_offset_reset="latest")
    assert Member(bench, "a").take(topic) == []
    for disconnected in bench.core.on_disconnect:
        disconnected(1)
    bench.core.settle()
    bench.produce(topic, 5)
    assert Member(bench, "b", connection_id=2).take(topic) == [(0, 4, 1)]


def test_a_group_that_has_settled_nothing_may_still_be_told_to_begin_at_the_first_record(
    bench: Bench,
) -> None:
    topic = bench.topic()
    bench.configure(share_auto_offset_reset="latest")
    bench.produce(topic, 5)
    assert Member(bench, "a").take(topic) == []
    for disconnected in bench.core.on_disconnect:
        disconnected(1)
    bench.core.settle()
    bench.configure(share_auto_offset_reset="earliest")
    assert Member(bench, "b", connection_id=2).take(topic) == [(0, 4, 1)]


def test_an_offset_that_an_administrator_has_set_is_not_asked_for_again(bench: Bench) -> None:
    topic = bench.topic()
    bench.produce(topic, 5)
    alter(bench, topic, 3)
    assert Member(bench, "a").take(topic) == [(3, 4, 1)]


def test_a_group_that_was_never_initialized_is_told_so(bench: Bench) -> None:
    topic = bench.core.topics.create("plain", partitions=1, configs={})
    data = partition(Member(bench, "a").fetch(topic))
    assert data is not None
    assert data.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_rejected_record_goes_to_the_dead_letters_before_it_is_archived() -> None:
    bench = Bench(
        **{"errors.deadletterqueue.auto.create.topics.enable": True}  # type: ignore[arg-type]
    )
    topic = bench.topic()
    bench.configure(
        errors_deadletterqueue_topic_name="dlq.orders", errors_deadletterqueue_copy_record_enable="true"
    )
    bench.produce(topic, 5)
    member = Member(bench, "a")
    member.take(topic)
    assert member.settle(topic, (2, 2, REJECT), (3, 4, ACCEPT)) == 0
    letters = bench.core.topics.get("dlq.orders")
    assert letters is not None
    from headrace.wire.records import read_records

    (record,) = [
        record for batch in letters.partitions[0].log.reader.batches() for record in read_records(batch)
    ]
    headers = dict(record.headers)
    assert record.value == b"v2"
    assert headers["__dlq.errors.offset"] == b"2"
    assert headers["__dlq.errors.message"] == b"Offset rejected by client."
    (loaded,) = bench.core.share_leader.loaded("g")
    assert loaded.engine.delivery_complete_count == 3


def test_a_record_wakes_one_of_many_idle_members_and_they_take_turns(bench: Bench) -> None:
    topic = bench.topic()
    members = [Member(bench, f"m{number}", connection_id=number) for number in range(20)]
    for member in members:
        member.fetch(topic)
    waiting = {member.name: member.ask_fetch(topic, wait_ms=60_000) for member in members}
    served: list[str] = []
    for _ in range(10):
        bench.produce(topic, 1)
        done = [name for name, later in waiting.items() if isinstance(later, Later) and later.is_done]
        assert len(done) == 1
        served += done
        del waiting[done[0]]
    assert served == [f"m{number}" for number in range(10)]


def test_waking_one_member_costs_the_same_however_many_wait() -> None:
    def cost(count: int) -> int:
        bench = Bench()
        topic = bench.topic(partitions=3)
        for number in range(count):
            member = Member(bench, f"m{number}", connection_id=number)
            member.fetch(topic, indexes=range(3))
            member.ask_fetch(topic, wait_ms=60_000, indexes=range(3))
        bench.produce(topic, 1, index=1)
        return operations(lambda: bench.produce(topic, 1, index=2))

    assert cost(40) < 1.1 * cost(5)


def test_all_waiting_members_are_told_that_their_topic_is_gone(bench: Bench) -> None:
    topic = bench.topic()
    waiting = []
    for number in range(5):
        member = Member(bench, f"m{number}", connection_id=number)
        member.fetch(topic)
        waiting.append(member.ask_fetch(topic, wait_ms=60_000))
    bench.core.topics.delete(topic.name)
    bench.core.settle()
    for later in waiting:
        assert isinstance(later, Later)
        data = partition(later.value)
        assert data is not None
        assert data.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_many_records_at_once_reach_as_many_members_as_they_are_enough_for(bench: Bench) -> None:
    topic = bench.topic()
    waiting = []
    for number in range(8):
        member = Member(bench, f"m{number}", connection_id=number)
        member.fetch(topic, records_max=2, mode=1)
        waiting.append(member.ask_fetch(topic, wait_ms=60_000, records_max=2, mode=1))
    bench.produce(topic, 10)
    taken = [acquired(later.value) for later in waiting if isinstance(later, Later) and later.is_done]
    spans = [(ranges[0][0], ranges[-1][1]) for ranges in taken]
    assert spans == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]


def test_a_fetch_that_finds_only_aborted_records_does_not_wait_beside_the_records_behind_them(
    bench: Bench,
) -> None:
    topic = bench.topic()
    bench.configure(share_isolation_level="read_committed")
    log, now_ms = topic.partitions[0].log, bench.clock.wall_ms()
    bench.produce(topic, 1)
    assert Member(bench, "holder", connection_id=2).take(topic) == [(0, 0, 1)]
    aborted = [NewRecord(None, b"aborted", (), now_ms)] * 5
    log.append(
        build_batch(aborted, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True),
        now_ms=now_ms,
    )
    log.append_marker(producer_id=7, producer_epoch=0, commit=False, coordinator_epoch=0, now_ms=now_ms)
    bench.produce(topic, 5)
    member = Member(bench, "a")
    first = member.ask_fetch(topic, records_max=5, wait_ms=60_000)
    assert isinstance(first, ShareFetchResponse)
    assert acquired(first) == []
    assert member.take(topic, records_max=5) == [(6, 11, 1)]


def test_a_parked_fetch_wakes_when_its_group_may_read_what_is_undecided(bench: Bench) -> None:
    topic = bench.topic()
    bench.configure(share_isolation_level="read_committed")
    log, now_ms = topic.partitions[0].log, bench.clock.wall_ms()
    undecided = [NewRecord(None, b"undecided", (), now_ms)] * 3
    log.append(
        build_batch(undecided, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True),
        now_ms=now_ms,
    )
    parked = Member(bench, "a").ask_fetch(topic, wait_ms=60_000)
    assert isinstance(parked, Later)
    bench.core.settle()
    assert not parked.is_done
    bench.configure(share_isolation_level="read_uncommitted")
    bench.core.settle()
    assert acquired(parked.value) == [(0, 2, 1)]


def test_a_parked_fetch_wakes_when_the_broker_allows_more_locks(bench: Bench) -> None:
    topic = bench.topic()
    settings = bench.core.settings
    settings.set_dynamic("group.share.partition.max.record.locks", "100")
    bench.produce(topic, 100)
    holder = Member(bench, "holder", connection_id=2)
    assert holder.take(topic, records_max=100) == [(0, 99, 1)]
    bench.produce(topic, 5)
    parked = Member(bench, "a").ask_fetch(topic, wait_ms=60_000)
    assert isinstance(parked, Later)
    settings.set_dynamic("group.share.partition.max.record.locks", "2000")
    bench.core.settle()
    assert acquired(parked.value) == [(100, 104, 1)]


@pytest.mark.parametrize("wait_ms", [0, 60_000])
def test_a_damaged_partition_does_not_keep_a_member_from_the_others(bench: Bench, wait_ms: int) -> None:
    topic = bench.topic(partitions=2, internal_segment_bytes="300", index_interval_bytes="1")
    bench.produce(topic, 10, per_batch=1)
    bench.produce(topic, 3, index=1, per_batch=3)
    segment = topic.partitions[0].log.segments[0]
    assert segment.is_closed
    segment.close()
    with closing(segment.disk.open(segment.path)) as file:
        file.write(0, bytes(segment.size))
    answer = Member(bench, "a").ask_fetch(topic, indexes=(0, 1), wait_ms=wait_ms)
    assert isinstance(answer, ShareFetchResponse)
    damaged, sound = partition(answer, 0), partition(answer, 1)
    assert damaged is not None
    assert sound is not None
    assert damaged.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [(one.first_offset, one.last_offset) for one in sound.acquired_records] == [(0, 2)]


def test_groups_that_somebody_only_names_leave_no_metrics_behind(bench: Bench) -> None:
    topic = bench.topic()
    Member(bench, "m").ask_fetch(topic)
    before = len(bench.core.metrics.snapshot())
    for number in range(20):
        Member(bench, "m", group_id=f"made-up-{number}").ask_fetch(topic)
    labels = [sample.labels.get("group", "") for sample in bench.core.metrics.snapshot()]
    assert not [group for group in labels if group.startswith("made-up")]
    assert labels.count(GROUP) > 0
    assert len(labels) <= before + 1  # the errors of those fetches
