"""Goal: dead letters are counted by cause and sent back once. Method: the real broker in process, letters as Kafka's
broker and our worker write them."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeVar

import pytest
from typer.testing import CliRunner

from headrace import Admin, Broker
from headrace.cli.app import app
from headrace.client import dead_letters
from headrace.client.admin.aio import AsyncAdmin
from headrace.client.cluster import Cluster
from headrace.client.dead_letter_watch import DeadLetterWatch
from headrace.client.dead_letters import LetterStatus, discard, read_dead_letter, read_dead_letters, redrive
from headrace.client.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from headrace.client.plain_fetch import list_offsets, read_range
from headrace.client.producing.aio import AsyncProducer
from headrace.client.producing.record import ProducerRecord
from headrace.client.settings import ClientSettings, ProducerSettings
from headrace.wire.enums import OffsetSpec
from headrace.wire.records import NewRecord, Record, read_records

T = TypeVar("T")
SOURCE, DEAD = "orders", "dlq.orders"
REJECTED, EXHAUSTED = "Offset rejected by client.", "Offset delivery count exceeded the threshold."


class World:
    def __init__(self, cluster: Cluster, broker: Broker) -> None:
        self.cluster = cluster
        self.broker = broker

    async def send(self, topic: str, *records: NewRecord, partition: int = 0) -> int:
        settings = ProducerSettings.from_client(self.cluster.settings)
        async with AsyncProducer.of(settings) as producer:
            sent = await producer.send_many(
                topic,
                [
                    ProducerRecord(one.value, one.key, one.headers, partition, max(0, one.timestamp))
                    for one in records
                ],
            )
        return sent[0].offset

    async def records(self, topic: str, partition: int = 0) -> list[Record]:
        ends = await list_offsets(self.cluster, {(topic, partition): OffsetSpec.LATEST})
        last = ends[topic, partition] - 1
        if last < 0:
            return []
        return [
            record
            async for _, batch in read_range(self.cluster, topic, partition, 0, last)
            for record in read_records(batch)
        ]

    async def statuses(self) -> list[LetterStatus]:
        return [letter.status for letter in (await read_dead_letters(self.cluster, DEAD)).letters]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.call(lambda: broker.core.topics.create(SOURCE, partitions=2, configs={}))
        broker.call(lambda: broker.core.topics.create(DEAD, partitions=1, configs={}))
        yield broker


@pytest.fixture
def play(broker: Broker) -> Callable[[Callable[[World], Awaitable[T]]], T]:
    def run(story: Callable[[World], Awaitable[T]]) -> T:
        async def go() -> T:
            settings = ClientSettings.parse(bootstrap_servers=broker.bootstrap_servers)
            async with Cluster(settings) as cluster:
                return await story(World(cluster, broker))

        return asyncio.run(go())

    return run


Play = Callable[[Callable[[World], Awaitable[Any]]], Any]


def letter(
    message: str = REJECTED,
    *,
    at: tuple[str, int, int] = (SOURCE, 1, 0),
    value: bytes | None = b"body",
    ours: Mapping[str, str] | None = None,
    time: int = 1000,
) -> NewRecord:
    facts: dict[str, object] = {
        "topic": at[0], "partition": at[1], "offset": at[2], "group": "g", "delivery.count": 5, "message": message,
    }  # fmt: skip
    headers: list[tuple[str, bytes | None]] = [("own", b"kept"), ("headrace.attempts", b"60")]
    headers += [(f"__dlq.errors.{name}", str(fact).encode()) for name, fact in facts.items()]
    headers += [(f"headrace.dlq.{name}", fact.encode()) for name, fact in (ours or {}).items()]
    return NewRecord(None if value is None else b"key", value, headers, time)


def test_letters_are_counted_by_cause_the_most_frequent_first(play: Play) -> None:
    async def story(world: World) -> None:
        await world.send(DEAD, letter(), letter(EXHAUSTED), letter(), NewRecord(b"no", b"letter"))
        listing = await read_dead_letters(world.cluster, DEAD)
        assert [(cause.text, cause.count, cause.waiting) for cause in listing.causes()] == [
            (REJECTED, 2, 2),
            (EXHAUSTED, 1, 1),
        ]
        first = listing.letters[0]
        assert (first.source_topic, first.source_partition, first.source_offset) == (SOURCE, 1, 0)
        assert (first.group_id, first.delivery_count, first.is_copied) == ("g", 5, True)

    play(story)


def test_a_workers_letters_with_one_traceback_have_one_cause_whatever_their_words(play: Play) -> None:
    def failed(text: str, trace: str) -> NewRecord:
        ours = {"cause": "exhausted", "exception": f"ValueError: {text}", "traceback.hash": trace}
        return letter(f"Retries exhausted: ValueError: {text}", ours=ours)

    async def story(world: World) -> None:
        await world.send(DEAD, failed("order 1", "aa"), failed("order 2", "aa"), failed("order 3", "bb"))
        causes = (await read_dead_letters(world.cluster, DEAD)).causes()
        assert [(cause.count, cause.exception) for cause in causes] == [(2, "ValueError"), (1, "ValueError")]

    play(story)


def test_a_dry_run_says_what_would_go_where_and_sends_nothing(play: Play) -> None:
    async def story(world: World) -> None:
        await world.send(DEAD, letter(), letter())
        planned = await redrive(world.cluster, DEAD)
        assert (planned.is_dry_run, planned.chosen, planned.targets) == (True, 2, {SOURCE: 2})
        assert await world.records(SOURCE, 1) == []
        assert len(await world.records(DEAD)) == 2

    play(story)


def test_a_letter_goes_back_without_its_attempts_and_the_headers_of_its_death(play: Play) -> None:
    async def story(world: World) -> None:
        await world.send(DEAD, letter(ours={"cause": "rejected"}))
        result = await redrive(world.cluster, DEAD, dry_run=False)
        assert (result.redriven, result.targets) == (1, {SOURCE: 1})
        (back,) = await world.records(SOURCE, 1)
        assert (back.key, back.value) == (b"key", b"body")
        assert back.headers == [
            ("own", b"kept"),
            ("headrace.redrive.from", f"{DEAD}-0@0".encode()),
            ("headrace.redrive.count", b"1"),
        ]

    play(story)


def test_no_letter_is_sent_twice(play: Play) -> None:
    async def story(world: World) -> None:
        await world.send(DEAD, *(letter() for _ in range(450)))
        assert (await redrive(world.cluster, DEAD, dry_run=False)).redriven == 450
        again = await redrive(world.cluster, DEAD, dry_run=False, again=True)
        assert (again.chosen, again.redriven) == (0, 0)
        assert len(await world.records(SOURCE, 1)) == 450
        assert set(await world.statuses()) == {LetterStatus.REDRIVEN}

    play(story)


def test_two_redrives_at_the_same_time_share_the_letters(play: Play) -> None:
    async def story(world: World) -> None:
        await world.send(DEAD, *(letter() for _ in range(300)))
        one, other = await asyncio.gather(
            redrive(world.cluster, DEAD, dry_run=False), redrive(world.cluster, DEAD, dry_run=False)
        )
        assert one.redriven + other.redriven == 300
        assert one.taken + other.taken == one.chosen + other.chosen - 300
        assert len(await world.records(SOURCE, 1)) == 300

    play(story)


def test_letters_can_be_sent_by_cause_and_the_oldest_first(play: Play) -> None:
    async def story(world: World) -> None:
        await world.send(
            DEAD,
            letter(time=30, value=b"late"),
            letter(EXHAUSTED, value=b"other"),
            letter(time=20, value=b"early"),
        )
        cause = (await read_dead_letters(world.cluster, DEAD)).letters[0].cause
        assert (await redrive(world.cluster, DEAD, cause=cause, limit=1, dry_run=False)).redriven == 1
        assert [record.value for record in await world.records(SOURCE, 1)] == [b"early"]
        assert (await redrive(world.cluster, DEAD, cause=cause, dry_run=False)).redriven == 1
        assert await world.statuses() == [
            LetterStatus.REDRIVEN,
            LetterStatus.WAITING,
            LetterStatus.REDRIVEN,
        ]

    play(story)


def test_a_letter_without_content_is_sent_with_what_the_source_still_has(play: Play) -> None:
    async def story(world: World) -> None:
        await world.send(SOURCE, NewRecord(b"k", b"original", [("own", b"x")]), partition=1)
        await world.send(DEAD, letter(value=None))
        assert (await redrive(world.cluster, DEAD, dry_run=False)).redriven == 1
        back = (await world.records(SOURCE, 1))[1]
        assert (back.key, back.value, back.headers[0]) == (b"k", b"original", ("own", b"x"))

    play(story)


def test_a_letter_whose_record_is_gone_stays_and_is_counted(play: Play) -> None:
    async def story(world: World) -> None:
        await world.send(
            DEAD, letter(value=None, at=(SOURCE, 1, 99)), letter(at=("deleted", 0, 0)), letter(value=b"here")
        )
        result = await redrive(world.cluster, DEAD, dry_run=False)
        assert (result.redriven, result.gone) == (1, 2)
        assert "deleted" in result.errors[0]
        assert await world.statuses() == [LetterStatus.WAITING, LetterStatus.WAITING, LetterStatus.REDRIVEN]

    play(story)


def test_a_topic_that_refuses_the_record_gives_the_claim_back(play: Play) -> None:
    async def story(world: World) -> None:
        topics = world.broker.core.topics
        world.broker.call(lambda: topics.create("small", partitions=1, configs={"max.message.bytes": "300"}))
        await world.send(DEAD, letter(value=bytes(5000), at=("small", 0, 0)))
        result = await redrive(world.cluster, DEAD, dry_run=False)
        assert (result.redriven, result.refused) == (0, 1)
        assert await world.statuses() == [LetterStatus.WAITING]

    play(story)


def test_an_interrupted_redrive_is_shown_and_repeated_only_when_asked_for(play: Play) -> None:
    claim = b'{"action": "claim", "id": "another", "offsets": [[0, 0]]}'

    async def story(world: World) -> None:
        await world.send(DEAD, letter())
        await world.send(DEAD, NewRecord(b"mark", claim, [("headrace.redrive", b"claim")]))
        assert await world.statuses() == [LetterStatus.CLAIMED]
        assert (await redrive(world.cluster, DEAD, dry_run=False)).chosen == 0
        assert (await redrive(world.cluster, DEAD, dry_run=False, again=True)).redriven == 1
        assert await world.statuses() == [LetterStatus.REDRIVEN]

    play(story)


def test_a_redrive_that_ends_while_another_repeats_it_is_not_repeated(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mark(action: str) -> NewRecord:
        said = json.dumps({"action": action, "id": "another", "offsets": [[0, 0]]}).encode()
        return NewRecord(b"mark", said, [("headrace.redrive", action.encode())])

    async def story(world: World) -> None:
        choose = dead_letters._chosen

        async def chosen_before_the_other_ends(*args: Any, **kwargs: Any) -> Any:
            found = await choose(*args, **kwargs)
            await world.send(DEAD, mark("done"))
            return found

        await world.send(DEAD, letter())
        await world.send(DEAD, mark("claim"))
        monkeypatch.setattr(dead_letters, "_chosen", chosen_before_the_other_ends)
        result = await redrive(world.cluster, DEAD, dry_run=False, again=True)
        assert (result.chosen, result.taken, result.redriven) == (1, 1, 0)
        assert await world.statuses() == [LetterStatus.REDRIVEN]

    play(story)


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"{}",
        b"[]",
        b'{"action": "done", "id": 1, "offsets": "all"}',
        b'{"action": "done", "id": 1, "offsets": [[0, 9223372036854775807], ["a", 1], 7]}',
    ],
)
def test_marks_that_nobody_of_us_wrote_change_nothing(play: Play, said: bytes) -> None:
    async def story(world: World) -> None:
        await world.send(DEAD, letter(), NewRecord(b"mark", said, [("headrace.redrive", b"done")]))
        assert await world.statuses() == [LetterStatus.WAITING]

    play(story)


def test_of_more_letters_than_it_may_hold_the_newest_are_read_and_the_rest_is_counted(play: Play) -> None:
    async def story(world: World) -> None:
        await world.send(DEAD, *(letter(value=b"%d" % number) for number in range(10)))
        listing = await read_dead_letters(world.cluster, DEAD, letters_max=4)
        assert ([one.offset for one in listing.letters], listing.passed_over) == ([6, 7, 8, 9], 6)

    play(story)


def test_one_letter_can_be_read_with_its_content(play: Play) -> None:
    async def story(world: World) -> None:
        await world.send(DEAD, letter(value=b"a"), letter(value=b"b"))
        assert (await read_dead_letter(world.cluster, DEAD, 0, 1)).value == b"b"
        with pytest.raises(OffsetOutOfRangeError):
            await read_dead_letter(world.cluster, DEAD, 0, 9)

    play(story)


def test_what_cannot_be_is_refused_by_name(play: Play) -> None:
    async def story(world: World) -> None:
        await world.send(DEAD, letter())
        with pytest.raises(ValueError, match="limit must be an int >= 1 or None, got 0"):
            await redrive(world.cluster, DEAD, limit=0)
        with pytest.raises(ValueError, match="has the cause 'nonsense'"):
            await redrive(world.cluster, DEAD, cause="nonsense")
        with pytest.raises(UnknownTopicOrPartitionError, match="'nothing'"):
            await read_dead_letters(world.cluster, "nothing")

    play(story)


@pytest.mark.parametrize("seen", [1, 200, 401])
def test_a_redrive_that_is_canceled_sends_nothing_twice_and_loses_nothing(play: Play, seen: int) -> None:
    """Letters that were under way at that moment may stay claimed; they were sent, or are still there to be sent."""

    async def story(world: World) -> None:
        await world.send(DEAD, *(letter(value=b"%d" % number) for number in range(600)))
        work = asyncio.create_task(redrive(world.cluster, DEAD, dry_run=False))
        while len(await world.records(SOURCE, 1)) < seen:
            pass  # each look lets the redrive go on
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        await redrive(world.cluster, DEAD, dry_run=False)
        values = [record.value for record in await world.records(SOURCE, 1)]
        assert len(values) == len(set(values))
        statuses = dict(zip([b"%d" % number for number in range(600)], await world.statuses(), strict=True))
        missing = set(statuses) - set(values)
        assert {statuses[value] for value in missing} <= {LetterStatus.CLAIMED}
        assert LetterStatus.WAITING not in statuses.values()

    play(story)


DEAD_LETTER_NAMES = ["dlq.orders", "dlq-orders", "orders.dlq", "orders-dlq", "orders.dead", "orders-dead"]
DEAD_LETTER_NAMES += ["orders.dlt", "orders-DLT", "orders.dead-letters"]


def test_one_rule_says_what_a_dead_letter_topic_is() -> None:
    """By its name, because groups may write to it, or because a group names it; the command line has the same list."""
    with Broker() as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            for name in [*DEAD_LETTER_NAMES, "orders", "dead", "named"]:
                admin.create_topic(name)
            admin.create_topic("allowed", configs={"errors.deadletterqueue.group.enable": "true"})
            admin.create_topic("box", configs={"errors.deadletterqueue.group.enable": "true"})
            admin.set_group_config("kitchen", {"errors.deadletterqueue.topic.name": "box"})
            found = admin.dead_letter_topics()
        assert found == sorted([*DEAD_LETTER_NAMES, "allowed", "box"])
        listed = CliRunner().invoke(app, ["dlq", "list", "--json", "-b", broker.bootstrap_servers])
        assert [one["topic"] for one in json.loads(listed.stdout)] == found


def test_a_watch_reads_each_letter_once_and_follows_what_becomes_of_it(play: Play) -> None:
    async def story(world: World) -> None:
        watch = DeadLetterWatch(world.cluster)
        await world.send(DEAD, letter(), letter("other"))
        await watch.refresh([DEAD])
        assert (watch.waiting(), watch.waiting_by_group()) == (2, {"g": 2})
        listing = watch.listing(DEAD)
        await watch.refresh([DEAD])
        assert watch.listing(DEAD) is listing
        await redrive(world.cluster, DEAD, limit=1, dry_run=False)
        await world.send(DEAD, letter())
        await watch.refresh([DEAD])
        seen = watch.listing(DEAD)
        assert seen is not None
        assert seen.letters == (await read_dead_letters(world.cluster, DEAD)).letters
        assert watch.waiting() == 2
        await watch.refresh([])
        assert (watch.waiting(), watch.listing(DEAD)) == (0, None)

    play(story)


def test_a_watch_begins_anew_when_its_topic_was_made_anew(play: Play) -> None:
    async def story(world: World) -> None:
        watch = DeadLetterWatch(world.cluster)
        await world.send(DEAD, letter(), letter())
        await watch.refresh([DEAD, "not-there"])
        assert watch.waiting() == 2
        async with AsyncAdmin(bootstrap_servers=world.broker.bootstrap_servers) as admin:
            await admin.delete_topics([DEAD])
            await admin.create_topic(DEAD)
        await world.send(DEAD, letter(), letter(), letter())
        await watch.refresh([DEAD])
        assert watch.waiting() == 3

    play(story)


def test_a_watch_holds_only_so_many_letters(play: Play) -> None:
    async def story(world: World) -> None:
        watch = DeadLetterWatch(world.cluster, letters_max=3)
        await world.send(DEAD, *(letter() for _ in range(5)))
        await watch.refresh([DEAD])
        listing = watch.listing(DEAD)
        assert listing is not None
        assert (len(listing.letters), listing.passed_over) == (3, 2)

    play(story)


def test_a_partition_without_a_leader_does_not_hold_up_the_others(play: Play, monkeypatch) -> None:
    async def story(world: World) -> None:
        world.broker.call(lambda: world.broker.core.topics.create("dlq.other", partitions=1, configs={}))
        watch = DeadLetterWatch(world.cluster)
        await world.send(DEAD, letter())
        await world.send("dlq.other", letter(), letter())
        await watch.refresh([DEAD, "dlq.other"])
        assert watch.waiting() == 3
        refresh = world.cluster.refresh

        async def without_leader(*topics: Any) -> None:
            await refresh(*topics)
            other = world.cluster.topic("dlq.other")
            assert other is not None
            other.partitions[0] = other.partitions[0]._replace(leader_id=-1)

        monkeypatch.setattr(world.cluster, "refresh", without_leader)
        await world.send(DEAD, letter())
        async with asyncio.timeout(world.cluster.settings.default_api_timeout_ms / 2_000):
            await watch.refresh([DEAD, "dlq.other"])
        assert watch.waiting() == 4
        monkeypatch.undo()
        await world.send("dlq.other", letter())
        await watch.refresh([DEAD, "dlq.other"], fresh=False)
        assert watch.waiting() == 5, "where a leader was missing, new metadata is asked for"

    play(story)


def test_a_discarded_letter_waits_no_more_and_no_redrive_takes_it(play: Play) -> None:
    async def story(world: World) -> None:
        await world.send(DEAD, letter(), letter("other"), letter())
        planned = await discard(world.cluster, DEAD, letters=[(0, 1)])
        assert (planned.chosen, planned.discarded) == (1, 0)
        done = await discard(world.cluster, DEAD, letters=[(0, 1)], dry_run=False)
        assert (done.discarded, done.taken) == (1, 0)
        waiting, discarded = LetterStatus.WAITING, LetterStatus.DISCARDED
        assert await world.statuses() == [waiting, discarded, waiting]
        assert (await redrive(world.cluster, DEAD)).chosen == 2
        again = await discard(world.cluster, DEAD, letters=[(0, 1)], dry_run=False)
        assert (again.chosen, again.discarded) == (0, 0)
        with pytest.raises(ValueError, match="no dead letter 0@99"):
            await discard(world.cluster, DEAD, letters=[(0, 99)])

    play(story)


def test_one_letter_goes_back_with_a_new_value(play: Play) -> None:
    async def story(world: World) -> None:
        await world.send(DEAD, letter(), letter())
        with pytest.raises(ValueError, match="for one letter"):
            await redrive(world.cluster, DEAD, value=b"new")
        done = await redrive(world.cluster, DEAD, letters=[(0, 1)], value=b"mended", dry_run=False)
        assert done.redriven == 1
        (sent,) = await world.records(SOURCE, 1)
        assert (sent.key, sent.value, sent.headers[0]) == (b"key", b"mended", ("own", b"kept"))
        assert await world.statuses() == [LetterStatus.WAITING, LetterStatus.REDRIVEN]

    play(story)
