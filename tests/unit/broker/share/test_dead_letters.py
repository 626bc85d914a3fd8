"""Dead letters on a real core: which records are copied where, what their headers say, and that none is forgotten."""

import errno
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.call import Call
from headrace.broker.later import Later
from headrace.broker.share import dead_letters
from headrace.broker.share.dead_letters import ENABLED, EXHAUSTED, REJECTED
from headrace.log.memory_disk import MemoryDisk
from headrace.share.changes import StateBatch
from headrace.share.states import RecordState
from headrace.wire.batches import HEADER_SIZE, read_header, with_header
from headrace.wire.dead_letter import BATCH_BYTES_MAX
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.records import NewRecord, Record, build_batch, read_records, unpack
from headrace.wire.share_state import ShareKey
from tests.unit.broker.share.bench import ACCEPT, REJECT, RELEASE, Bench, Member, WhenTold
from tests.unit.log.logs import delete_records

QUEUE = "dlq.orders"
AUTO_CREATE = "errors.deadletterqueue.auto.create.topics.enable"
PREFIX = "errors.deadletterqueue.topic.name.prefix"
NAMES = ["topic", "partition", "offset", "group", "delivery.count", "message"]


class Office(Bench):
    """A bench whose group names a dead-letter topic, which is made when the first letter comes."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        queue: str = QUEUE,
        copies: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(**options, **{AUTO_CREATE: True, **(settings or {})})
        self.queue = queue
        self.orders = self.topic(partitions=3)
        self.set_group(copies=copies)

    def set_group(self, *, copies: bool = False, limit: int = 5) -> None:
        self.configure(
            errors_deadletterqueue_topic_name=self.queue,
            errors_deadletterqueue_copy_record_enable=str(copies).lower(),
            share_delivery_count_limit=str(limit),
        )

    def restart(self, *, clean: bool = True) -> None:
        super().restart(clean=clean)
        found = self.core.topics.get("orders")
        assert found is not None
        self.orders = found

    def write(self, *records: NewRecord, index: int = 0) -> None:
        now_ms = self.clock.wall_ms()
        for record in records:
            batch = build_batch([record._replace(timestamp=now_ms)])
            self.orders.partitions[index].log.append(batch, now_ms=now_ms)

    def letters(self, index: int = 0) -> list[Record]:
        topic = self.core.topics.get(self.queue)
        if topic is None:
            return []
        return [
            record for batch in topic.partitions[index].log.reader.batches() for record in read_records(batch)
        ]

    def offsets(self) -> list[int]:
        """Of the records that have a letter."""
        return [int(fact(letter, "offset")) for letter in self.letters()]

    def count_of(self, state: RecordState) -> int:
        (loaded,) = self.core.share_leader.loaded("g")
        return loaded.engine.count_of(state)

    def counted(self, name: str) -> float:
        return sum(sample.value for sample in self.core.metrics.snapshot() if sample.name == name)

    def disconnect(self, connection_id: int) -> None:
        for told in self.core.on_disconnect:
            told(connection_id)
        self.core.settle()


def fact(letter: Record, name: str) -> str:
    return (dict(letter.headers)[f"__dlq.errors.{name}"] or b"").decode()


def reject_all(office: Office, count: int, *, index: int = 0) -> None:
    member = Member(office, "a")
    taken = member.take(office.orders, records_max=count)
    assert taken
    assert member.settle(office.orders, (taken[0][0], taken[-1][1], REJECT)) == 0


class TestWhatALetterSays:
    def test_without_copying_it_is_six_headers_and_no_content(self) -> None:
        office = Office()
        office.write(NewRecord(b"key", b"value", [("mine", b"1")]))
        office.clock.advance(60)
        reject_all(office, 1)
        (letter,) = office.letters()
        assert (letter.key, letter.value) == (None, None)
        assert [name for name, _ in letter.headers] == [f"__dlq.errors.{name}" for name in NAMES]
        said = {name: fact(letter, name) for name in NAMES}
        assert said == {
            "topic": "orders",
            "partition": "0",
            "offset": "0",
            "group": "g",
            "delivery.count": "1",
            "message": "Offset rejected by client.",
        }
        assert abs(letter.timestamp - office.clock.wall_ms()) < 10_000

    def test_with_copying_the_record_comes_with_it_and_its_own_headers_come_first(self) -> None:
        office = Office(copies=True)
        office.write(NewRecord(b"key", b"value", [("mine", b"1"), ("null", None)]))
        reject_all(office, 1)
        (letter,) = office.letters()
        assert (letter.key, letter.value) == (b"key", b"value")
        assert letter.headers[:2] == [("mine", b"1"), ("null", None)]
        assert [name for name, _ in letter.headers[2:]] == [f"__dlq.errors.{name}" for name in NAMES]

    def test_a_partition_has_its_letters_in_the_partition_of_the_same_number_as_far_as_there_are(
        self,
    ) -> None:
        office = Office({"num.partitions": 2})
        for index in range(3):
            office.produce(office.orders, 1, index=index)
        member = Member(office, "a")
        member.fetch(office.orders, indexes=(0, 1, 2))
        office.disconnect(1)
        office.set_group(limit=2)
        member.epoch = 0
        member.fetch(office.orders, indexes=(0, 1, 2))
        office.disconnect(1)
        assert [fact(letter, "partition") for letter in office.letters(0)] == ["0", "2"]
        assert [fact(letter, "partition") for letter in office.letters(1)] == ["1"]

    def test_neighbors_given_up_for_different_reasons_say_so(self) -> None:
        office = Office()
        office.set_group(limit=2)
        office.produce(office.orders, 4)
        member = Member(office, "a")
        member.take(office.orders)
        member.settle(office.orders, (0, 1, RELEASE), (2, 2, REJECT), (3, 3, ACCEPT))
        member.take(office.orders)
        member.settle(office.orders, (0, 0, RELEASE), (1, 1, REJECT))
        said = {
            int(fact(letter, "offset")): (fact(letter, "delivery.count"), fact(letter, "message"))
            for letter in office.letters()
        }
        assert said == {0: ("2", EXHAUSTED), 1: ("2", REJECTED), 2: ("1", REJECTED)}


class TestWhenARecordIsGivenUp:
    @pytest.fixture
    def office(self) -> Office:
        office = Office(copies=True)
        office.set_group(limit=2, copies=True)
        office.produce(office.orders, 3)
        return office

    def test_released_with_no_delivery_left(self, office: Office) -> None:
        member = Member(office, "a")
        for count in (1, 2):
            assert member.take(office.orders) == [(0, 2, count)]
            assert office.letters() == []
            assert member.settle(office.orders, (0, 2, RELEASE)) == 0
        self.check(office)

    def test_its_last_lock_ran_out(self, office: Office) -> None:
        for count in (1, 2):
            member = Member(office, "a")
            assert member.take(office.orders) == [(0, 2, count)]
            assert office.letters() == []
            office.advance(31)
        self.check(office)

    def test_its_last_holder_closed_the_session(self, office: Office) -> None:
        for count in (1, 2):
            member = Member(office, "a")
            assert member.take(office.orders) == [(0, 2, count)]
            assert office.letters() == []
            assert member.acknowledge(office.orders, epoch=-1).error_code == 0
        self.check(office)

    def test_its_last_holder_disconnected(self, office: Office) -> None:
        for count in (1, 2):
            member = Member(office, "a")
            assert member.take(office.orders) == [(0, 2, count)]
            assert office.letters() == []
            office.disconnect(1)
        self.check(office)

    def check(self, office: Office) -> None:
        assert [letter.value for letter in office.letters()] == [b"v0", b"v1", b"v2"]
        assert {fact(letter, "message") for letter in office.letters()} == {EXHAUSTED}
        assert {fact(letter, "delivery.count") for letter in office.letters()} == {"2"}
        assert Member(office, "b", connection_id=2).take(office.orders) == []
        assert office.counted("DeadLetterQueueRecordCount") == 3

    def test_the_start_passes_it_once_it_is_copied(self, office: Office) -> None:
        reject_all(office, 3)
        (loaded,) = office.core.share_leader.loaded("g")
        assert loaded.engine.start_offset == 3

    def test_who_reads_the_dead_letters_hears_of_it_at_once(self, office: Office) -> None:
        office.core.topics.create(QUEUE, partitions=1, configs={ENABLED: "true"})
        asked = FetchRequest(
            max_wait_ms=60_000,
            min_bytes=1,
            topics=[
                FetchTopic(topic=QUEUE, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])
            ],
        )
        parked = office.core.handle(asked, Call(api_version=12))
        assert isinstance(parked, Later)
        reject_all(office, 3)
        assert parked.is_done


class TestWhereLettersMayGo:
    @pytest.mark.parametrize(
        ("queue", "settings", "existing", "why"),
        [
            ("__dlq", {PREFIX: ""}, None, "internal topic"),
            ("__share_group_state", {PREFIX: ""}, None, "internal topic"),
            ("letters", {}, "false", "errors.deadletterqueue.group.enable=false"),
            (QUEUE, {}, None, "errors.deadletterqueue.group.enable=false"),
            ("letters", {}, "true", "does not begin with"),
            ("letters", {}, None, "does not begin with"),
            (QUEUE, {AUTO_CREATE: False}, None, "does not exist"),
            ("dlq.or/ders", {}, None, "dlq.or/ders"),
        ],
    )
    def test_a_topic_that_may_not_be_written_is_named_and_the_group_goes_on(
        self,
        queue: str,
        settings: dict[str, object],
        existing: str | None,
        why: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        office = Office(settings, queue=queue)
        if existing is not None or why.endswith("enable=false"):
            office.core.topics.create(queue, partitions=1, configs={ENABLED: existing} if existing else {})
        office.produce(office.orders, 2)
        caplog.set_level(logging.ERROR, "headrace.share")
        reject_all(office, 2)
        assert why in caplog.text
        assert "records 0-1 of orders-0 get no dead letter" in caplog.text
        (loaded,) = office.core.share_leader.loaded("g")
        assert loaded.engine.start_offset == 2
        assert office.counted("DeadLetterQueueFailedProduceRequestsPerSec") == 1
        assert office.counted("DeadLetterQueueRecordCount") == 0

    def test_any_name_will_do_without_a_prefix(self) -> None:
        office = Office({PREFIX: ""}, queue="letters")
        office.produce(office.orders, 1)
        reject_all(office, 1)
        assert office.offsets() == [0]

    def test_a_topic_that_is_made_for_them_takes_letters_with_their_own_time(self) -> None:
        office = Office({"num.partitions": 4})
        office.produce(office.orders, 1)
        reject_all(office, 1)
        made = office.core.topics.get(QUEUE)
        assert made is not None
        assert len(made.partitions) == 4
        assert made.configs == {ENABLED: "true", "message.timestamp.type": "CreateTime"}

    def test_a_group_that_names_no_topic_has_no_dead_letters(self) -> None:
        office = Office(queue="")
        office.produce(office.orders, 1)
        reject_all(office, 1)
        assert office.count_of(RecordState.ARCHIVING) == 0
        assert len(office.core.topics) == 2

    def test_before_share_version_2_there_are_none(self) -> None:
        office = Office()
        office.core.features.finalize({"share.version": 1})
        office.produce(office.orders, 1)
        reject_all(office, 1)
        assert office.core.topics.get(QUEUE) is None

    def test_they_begin_when_the_level_is_raised(self) -> None:
        """Of share-partitions that are being served, too."""
        office = Office()
        office.core.features.finalize({"share.version": 1})
        office.produce(office.orders, 2, per_batch=1)
        member = Member(office, "a")
        assert member.take(office.orders, records_max=1, mode=1) == [(0, 0, 1)]
        member.settle(office.orders, (0, 0, REJECT))
        office.core.features.finalize({"share.version": 2})
        assert member.take(office.orders) == [(1, 1, 1)]
        member.settle(office.orders, (1, 1, REJECT))
        assert office.offsets() == [1]

    def test_the_topic_may_change_between_two_letters(self) -> None:
        office = Office()
        office.produce(office.orders, 10, per_batch=5)
        reject_all(office, 5)
        office.queue = "dlq.other"
        office.set_group()
        member = Member(office, "b", connection_id=2)
        assert member.take(office.orders) == [(5, 9, 1)]
        member.settle(office.orders, (5, 9, REJECT))
        assert office.offsets() == [5, 6, 7, 8, 9]


class TestSizes:
    def test_many_large_records_go_in_several_batches(self) -> None:
        office = Office(copies=True)
        values = [bytes([number]) * 100_000 for number in range(12)]
        office.write(*(NewRecord(None, value) for value in values))
        member = Member(office, "a")
        member.take(office.orders, max_bytes=1 << 25)
        member.settle(office.orders, (0, 11, REJECT))
        assert [letter.value for letter in office.letters()] == values
        queue = office.core.topics.require(QUEUE, 0)
        sizes = [read_header(batch).size for batch in queue.log.reader.batches()]
        assert len(sizes) == 3
        assert max(sizes) < BATCH_BYTES_MAX + 1000

    def test_headers_have_their_weight_too(self) -> None:
        office = Office(copies=True)
        office.write(*(NewRecord(None, None, [("big", bytes(200_000))]) for _ in range(4)))
        reject_all(office, 4)
        queue = office.core.topics.require(QUEUE, 0)
        assert len(list(queue.log.reader.batches())) == 2

    def test_a_topic_that_takes_only_small_batches_gets_small_ones(self) -> None:
        office = Office(copies=True)
        office.core.topics.create(QUEUE, partitions=1, configs={ENABLED: "true", "max.message.bytes": "2500"})
        office.write(*(NewRecord(None, bytes([number]) * 500) for number in range(10)))
        reject_all(office, 10)
        assert [letter.value for letter in office.letters()] == [bytes([n]) * 500 for n in range(10)]

    def test_only_the_record_that_does_not_fit_loses_its_content(self) -> None:
        office = Office(copies=True)
        office.core.topics.create(QUEUE, partitions=1, configs={ENABLED: "true", "max.message.bytes": "2500"})
        office.write(
            NewRecord(b"a", b"small"),
            NewRecord(b"b", bytes(3000), [("mine", bytes(3000))]),
            NewRecord(b"c", b"small"),
        )
        reject_all(office, 3)
        first, large, last = office.letters()
        assert (first.value, last.value) == (b"small", b"small")
        assert (large.key, large.value) == (None, None)
        assert [name for name, _ in large.headers] == [f"__dlq.errors.{name}" for name in NAMES]


class TestSourcesThatCannotBeRead:
    def test_records_that_retention_took_have_headers_only(self) -> None:
        office = Office(copies=True)
        office.produce(office.orders, 5)
        member = Member(office, "a")
        member.take(office.orders)
        delete_records(office.orders.partitions[0].log, 3)
        assert member.settle(office.orders, (0, 4, REJECT)) == 0
        assert [letter.value for letter in office.letters()] == [None, None, None, b"v3", b"v4"]
        assert office.offsets() == [0, 1, 2, 3, 4]

    def test_a_batch_that_is_junk_inside_has_headers_only(self, caplog: pytest.LogCaptureFixture) -> None:
        office = Office(copies=True)
        office.produce(office.orders, 1)
        log = office.orders.partitions[0].log
        junk = bytearray(build_batch([NewRecord(None, b"x" * 40, (), office.clock.wall_ms())]))
        junk[HEADER_SIZE : HEADER_SIZE + 3] = b"\xff\xff\xff"
        log.append(with_crc(junk), now_ms=office.clock.wall_ms())
        office.produce(office.orders, 1)
        reject_all(office, 3)
        assert [letter.value for letter in office.letters()] == [b"v0", None, b"v2"]
        assert "unreadable batch" in caplog.text

    def test_markers_of_transactions_have_headers_only(self) -> None:
        office = Office(copies=True)
        log = office.orders.partitions[0].log
        now_ms = office.clock.wall_ms()
        batch = build_batch(
            [NewRecord(None, b"t", (), now_ms)],
            producer_id=7,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        log.append(batch, now_ms=now_ms)
        log.append_marker(producer_id=7, producer_epoch=0, commit=True, coordinator_epoch=0, now_ms=now_ms)
        reject_all(office, 2)
        assert [letter.value for letter in office.letters()] == [b"t", None]


def with_crc(batch: bytearray) -> bytes:
    """The batch with the checksum that its bytes now have, as a producer of junk would send it."""
    return with_header(read_header(batch), bytes(batch[HEADER_SIZE:]))


class TestUntilTheCopyIsSafe:
    @pytest.fixture
    def runner(self) -> WhenTold:
        return WhenTold()

    @pytest.fixture
    def office(self, runner: WhenTold, tmp_path: Path) -> Office:
        office = Office(
            disk=MemoryDisk(is_simulated=True),
            runner=runner,
            metadata=tmp_path / "metadata.sqlite",
            copies=True,
        )
        office.produce(office.orders, 3)
        return office

    def test_the_record_is_not_archived_before_its_copy_is_durable(
        self, office: Office, runner: WhenTold
    ) -> None:
        reject_all(office, 3)
        assert office.offsets() == [0, 1, 2]
        assert office.count_of(RecordState.ARCHIVING) == 3
        runner.run_all()
        assert office.count_of(RecordState.ARCHIVING) == 0
        (loaded,) = office.core.share_leader.loaded("g")
        assert loaded.engine.start_offset == 3

    def test_meanwhile_nobody_gets_it_and_nobody_can_answer_for_it(self, office: Office) -> None:
        reject_all(office, 3)
        other = Member(office, "b", connection_id=2)
        assert other.take(office.orders) == []
        assert other.settle(office.orders, (0, 2, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE
        office.advance(31)
        assert other.take(office.orders) == []

    def test_the_member_may_leave_before_that(self, office: Office, runner: WhenTold) -> None:
        reject_all(office, 3)
        office.disconnect(1)
        assert len(office.core.share_leader.loaded("g")) == 1
        runner.run_all()
        assert office.core.share_leader.loaded("g") == []
        assert Member(office, "b").take(office.orders) == []
        assert office.offsets() == [0, 1, 2]

    def test_a_reset_meanwhile_stands(self, office: Office, runner: WhenTold) -> None:
        reject_all(office, 3)
        (old,) = office.core.share_leader.loaded("g")
        office.core.share_state.initialize(old.key, state_epoch=9, start_offset=1)
        office.core.share_leader.fence_partitions("g", office.orders.id)
        other = Member(office, "b", connection_id=2)
        assert other.take(office.orders) == [(1, 2, 1)]
        runner.run_all()
        state = office.core.share_state.read(old.key, -1)
        assert (state.start_offset, list(state.batches)) == (1, [])

    def test_after_a_crash_it_is_copied_again(self, office: Office, runner: WhenTold) -> None:
        reject_all(office, 3)
        runner.waiting.clear()
        office.restart(clean=False)
        assert Member(office, "b").take(office.orders) == []
        assert office.offsets() == [0, 1, 2] * 2
        runner.run_all()
        assert office.core.share_leader.loaded("g")[0].engine.start_offset == 3

    def test_that_waits_for_nobody_who_fetches(self, office: Office, runner: WhenTold) -> None:
        reject_all(office, 3)
        runner.waiting.clear()
        office.restart(clean=False)
        office.core.settle()
        assert office.offsets() == [0, 1, 2] * 2
        runner.run_all()
        assert office.core.share_leader.loaded("g") == []
        office.restart()
        office.core.settle()
        assert office.offsets() == [0, 1, 2] * 2
        assert Member(office, "b").take(office.orders) == []

    def test_after_the_copy_was_archived_it_is_not(self, office: Office, runner: WhenTold) -> None:
        reject_all(office, 3)
        runner.run_all()
        office.restart(clean=False)
        assert Member(office, "b").take(office.orders) == []
        assert office.offsets() == [0, 1, 2]

    @pytest.mark.parametrize(("count", "cause"), [(4, REJECTED), (5, EXHAUSTED), (6, EXHAUSTED)])
    def test_the_cause_is_told_by_the_count_then(
        self, office: Office, runner: WhenTold, count: int, cause: str
    ) -> None:
        key = ShareKey("g", office.orders.id, 0)
        office.core.share_state.write(
            key,
            state_epoch=-1,
            leader_epoch=-1,
            start_offset=0,
            complete_count=0,
            batches=[StateBatch(1, 1, RecordState.ARCHIVING, count)],
        )
        assert Member(office, "b").take(office.orders) == [(0, 0, 1), (2, 2, 1)]
        (letter,) = office.letters()
        assert (letter.value, fact(letter, "message")) == (b"v1", cause)
        assert fact(letter, "delivery.count") == str(count)

    def test_a_full_disk_is_waited_for(self, office: Office, runner: WhenTold) -> None:
        member = Member(office, "a")
        member.take(office.orders)
        office.core.topics.create(QUEUE, partitions=1, configs={ENABLED: "true"})
        office.disk.fail_at(2, OSError(errno.ENOSPC, "no space left"))
        assert member.settle(office.orders, (0, 2, REJECT)) == 0
        runner.run_all()
        assert office.count_of(RecordState.ARCHIVING) == 3
        assert office.letters() == []
        office.disk.fail_at(1, OSError(errno.ENOSPC, "no space left"))
        office.advance(1.1)
        assert office.letters() == []
        office.advance(1.1)
        assert office.letters() == []
        office.advance(1.1)
        assert office.offsets() == [0, 1, 2]
        runner.run_all()
        assert office.count_of(RecordState.ARCHIVING) == 0

    def test_a_full_disk_that_keeps_the_topic_from_being_made_is_waited_for(
        self, office: Office, runner: WhenTold
    ) -> None:
        member = Member(office, "a")
        member.take(office.orders)
        runner.run_all()
        database = office.core.metadata._database
        database.execute("PRAGMA query_only=1")
        assert member.settle(office.orders, (0, 2, REJECT)) == 0
        runner.run_all()
        office.advance(1.1)
        assert office.core.topics.get(QUEUE) is None
        assert office.count_of(RecordState.ARCHIVING) == 3
        database.execute("PRAGMA query_only=0")
        office.advance(2.1)
        assert office.offsets() == [0, 1, 2]
        runner.run_all()
        assert office.count_of(RecordState.ARCHIVING) == 0


class TestManyLetters:
    def office(self, records: int, *, compression: int = 3, size: int = 10, **options: Any) -> Office:
        office = Office({"group.share.max.partition.max.record.locks": 1_000_000}, copies=True, **options)
        office.configure(
            errors_deadletterqueue_topic_name=office.queue,
            errors_deadletterqueue_copy_record_enable="true",
            share_partition_max_record_locks="100000",
        )
        now_ms = office.clock.wall_ms()
        batch = build_batch(
            [NewRecord(None, b"%d" % number + bytes(size), (), now_ms) for number in range(records)],
            compression=compression,
        )
        office.orders.partitions[0].log.append(batch, now_ms=now_ms)
        return office

    def reject_every_other(self, office: Office, records: int) -> None:
        member = Member(office, "a")
        member.take(office.orders, records_max=records, max_bytes=1 << 30)
        answers = [(offset, offset, REJECT if offset % 2 else ACCEPT) for offset in range(records)]
        assert member.settle(office.orders, *answers) == 0

    def finish(self, office: Office) -> None:
        while office.core.slices.is_pending:
            office.core.settle()

    def test_each_batch_is_read_and_opened_once_however_many_runs_are_rejected(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened: list[int] = []

        def counting(batch: bytes, **options: Any) -> bytes:
            opened.append(read_header(batch).base_offset)
            return unpack(batch, **options)

        monkeypatch.setattr(dead_letters, "unpack", counting)
        office = self.office(600)
        self.reject_every_other(office, 600)
        self.finish(office)
        assert office.offsets() == list(range(1, 600, 2))
        assert [(letter.value or b"")[:-10] for letter in office.letters()] == [
            b"%d" % offset for offset in range(1, 600, 2)
        ]
        assert opened == [0]

    def test_one_turn_copies_a_bounded_number_and_all_are_copied_in_the_end(self) -> None:
        count = 4 * dead_letters.RECORDS_PER_STEP
        office = self.office(count)
        self.reject_every_other(office, count)
        written = len(office.letters())
        assert 0 < written <= dead_letters.RECORDS_PER_STEP
        assert office.count_of(RecordState.ARCHIVING) == count // 2
        while office.core.slices.is_pending:
            before = len(office.letters())
            office.core.settle()
            assert len(office.letters()) - before <= dead_letters.RECORDS_PER_STEP
        assert office.offsets() == list(range(1, count, 2))
        (loaded,) = office.core.share_leader.loaded("g")
        assert loaded.engine.start_offset == count

    def test_a_batch_that_unpacks_to_much_is_unpacked_on_the_slow_thread(self, tmp_path: Path) -> None:
        runner = WhenTold()
        office = self.office(
            10,
            size=300_000,
            runner=runner,
            disk=MemoryDisk(is_simulated=True),
            metadata=tmp_path / "m.sqlite",
        )
        runner.run_all()
        self.reject_every_other(office, 10)
        assert office.letters() == []
        while runner.waiting or office.core.slices.is_pending:
            runner.run_all()
            office.core.settle()
        assert office.offsets() == [1, 3, 5, 7, 9]
        assert {len(letter.value or b"") for letter in office.letters()} == {300_001}
