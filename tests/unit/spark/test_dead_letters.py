"""Copies of rejected records: none stops a query, however large it is and whatever has become of its topic."""

import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from headrace import Broker
from headrace.client.cluster import ANY, Cluster, TopicMetadata
from headrace.client.delivery import AcknowledgeType
from headrace.client.plain_fetch import list_offsets, read_range
from headrace.spark import dead_letters
from headrace.spark.dead_letters import copy_rejected
from headrace.spark.errors import OutcomeError
from headrace.spark.outcomes import Outcome
from headrace.wire.enums import OffsetSpec
from headrace.wire.ids import uuid_text
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from headrace.wire.records import Record, read_records
from tests.unit.client.misbehaving import Relay
from tests.unit.client.talk import create_topic, delete_records, produce, run, settings_for

BATCH = 10


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def rejected(topic: str, first: int, last: int | None = None, reason: str = "bad", count: int = 1) -> Outcome:
    last = first if last is None else last
    return Outcome(topic, 0, first, last, count, AcknowledgeType.REJECT, reason)


class Box:
    """A topic with records, its dead-letter topic, and what was copied."""

    def __init__(self, cluster: Cluster, topic: TopicMetadata) -> None:
        self.cluster = cluster
        self.topic = topic
        self.name = topic.name
        self.letters_topic = f"dead-{topic.name}"[:200]

    async def copy(self, *outcomes: Outcome) -> int:
        topic_ids = {self.name: uuid_text(self.topic.topic_id)}
        return await copy_rejected(self.cluster, outcomes, self.letters_topic, "g", topic_ids)

    async def letters(self) -> list[Record]:
        place = self.letters_topic, 0
        end = (await list_offsets(self.cluster, {place: OffsetSpec.LATEST}))[place]
        if not end:
            return []
        return [
            record
            async for _, batch in read_range(self.cluster, *place, 0, end - 1)
            for record in read_records(batch)
        ]

    async def sources(self) -> list[int]:
        return [int(fact(letter, "__dlq.errors.offset")) for letter in await self.letters()]

    async def delete_topic(self) -> None:
        gone = DeleteTopicState(name=None, topic_id=self.topic.topic_id)
        answer = await self.cluster.send(ANY, DeleteTopicsRequest(topics=[gone], timeout_ms=10_000))
        assert not answer.responses[0].error_code, answer


def fact(letter: Record, name: str) -> str:
    return dict(letter.headers)[name].decode()


Scenario = Callable[[Box], Coroutine[Any, Any, None]]


@pytest.fixture
def box(broker: Broker, unique: str) -> Callable[..., None]:
    """Runs a scenario on a topic that has so many records of so many bytes, in batches of ten."""

    def start(scenario: Scenario, *, count: int = 100, size: int = 4, largest: int = 1_048_588) -> None:
        async def whole() -> None:
            settings = settings_for(broker, default_api_timeout_ms=300)
            async with Cluster(settings) as cluster:
                box = Box(cluster, await create_topic(cluster, unique))
                await create_topic(cluster, box.letters_topic, configs={"max.message.bytes": str(largest)})
                for begin in range(0, count, BATCH):
                    values = [b"%d" % number for number in range(begin, begin + BATCH)]
                    await produce(cluster, box.topic, [value.rjust(size) for value in values], key=b"k")
                await scenario(box)

        run(whole())

    return start


def test_each_rejected_record_is_copied_once_with_its_reason(box: Callable[..., None]) -> None:
    async def scenario(box: Box) -> None:
        some = [rejected(box.name, 3, 5, "first"), rejected(box.name, 98, reason="second")]
        released = Outcome(box.name, 0, 50, 60, 1, AcknowledgeType.RELEASE)
        assert await box.copy(*reversed(some), released) == 4
        letters = await box.letters()
        assert [letter.value for letter in letters] == [b"   3", b"   4", b"   5", b"  98"]
        assert [fact(letter, "__dlq.errors.message") for letter in letters] == ["first"] * 3 + ["second"]
        assert all(letter.key == b"k" for letter in letters)
        assert all(letter.timestamp > 1_000 for letter in letters), "retention counts from the copy"
        assert {fact(letter, "headrace.dlq.timestamp") for letter in letters} == {"1000"}

    box(scenario)


def test_outcomes_that_overlap_make_one_letter_for_each_record(box: Callable[..., None]) -> None:
    async def scenario(box: Box) -> None:
        overlapping = [rejected(box.name, 0, 9), rejected(box.name, 5), rejected(box.name, 8, 12, "other")]
        assert await box.copy(*overlapping) == 13
        assert await box.sources() == list(range(13))

    box(scenario)


def test_more_than_a_topic_takes_at_once_goes_in_several_batches(box: Callable[..., None]) -> None:
    async def scenario(box: Box) -> None:
        assert await box.copy(rejected(box.name, 0, 1_999)) == 2_000
        assert await box.sources() == list(range(2_000))

    box(scenario, count=2_000, size=1_000)


def test_a_topic_that_takes_only_small_batches_gets_small_ones(box: Callable[..., None]) -> None:
    async def scenario(box: Box) -> None:
        await box.copy(rejected(box.name, 0, 39))
        assert await box.sources() == list(range(40))
        assert all(letter.value is not None for letter in await box.letters())

    box(scenario, size=1_000, largest=4_000)


def test_a_record_that_is_too_large_is_copied_without_its_value(
    box: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    """As `headrace dlq` knows it from workers: it finds the value where the headers say."""

    async def scenario(box: Box) -> None:
        with caplog.at_level(logging.WARNING, "headrace.spark"):
            assert await box.copy(rejected(box.name, 7)) == 1
        (letter,) = await box.letters()
        assert (letter.key, letter.value) == (b"k", None)
        assert fact(letter, "headrace.dlq.copied") == "false"
        assert fact(letter, "__dlq.errors.topic") == box.name
        assert fact(letter, "__dlq.errors.offset") == "7"
        assert "max.message.bytes" in caplog.text

    box(scenario, count=10, size=5_000, largest=4_000)


def test_records_that_retention_has_taken_are_named_and_the_others_copied(
    box: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(box: Box) -> None:
        await delete_records(box.cluster, box.topic, 50)
        with caplog.at_level(logging.WARNING, "headrace.spark"):
            assert (
                await box.copy(rejected(box.name, 5), rejected(box.name, 48, 52), rejected(box.name, 70)) == 4
            )
        assert await box.sources() == [50, 51, 52, 70]
        assert f"{box.name}-0 between offsets 5 and 70 get no dead letter" in caplog.text
        assert "starts at 50" in caplog.text

    box(scenario)


def test_records_of_a_topic_that_is_gone_are_named(
    box: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(box: Box) -> None:
        await box.delete_topic()
        with caplog.at_level(logging.WARNING, "headrace.spark"):
            elsewhere = rejected(box.name, 5)._replace(partition=1)
            assert await box.copy(rejected(box.name, 5), elsewhere) == 0
        assert "-0 between offsets 5 and 5 get no dead letter" in caplog.text
        assert "-1 are not dead-lettered either" in caplog.text

    box(scenario)


def test_records_of_a_topic_that_was_made_again_are_not_taken_for_the_rejected_ones(
    box: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(box: Box) -> None:
        await box.delete_topic()
        await produce(box.cluster, await create_topic(box.cluster, box.name), [b"another"] * 10)
        with caplog.at_level(logging.WARNING, "headrace.spark"):
            assert await box.copy(rejected(box.name, 5)) == 0
        assert await box.letters() == []
        assert "deleted and created again" in caplog.text

    box(scenario)


def test_scattered_records_are_read_in_one_go(
    box: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []

    def counted(cluster: Cluster, topic: str, partition: int, first: int, last: int, **rest: Any) -> Any:
        asked.append((first, last))
        return read_range(cluster, topic, partition, first, last, **rest)

    async def scenario(box: Box) -> None:
        monkeypatch.setattr(dead_letters, "read_range", counted)
        assert await box.copy(*(rejected(box.name, offset) for offset in range(5, 1_000, 10))) == 100
        assert asked == [(5, 995)]
        assert await box.sources() == list(range(5, 1_000, 10))

    box(scenario, count=1_000)


def test_copies_whose_response_is_lost_are_written_once(unique: str) -> None:
    """The broker has written them, and its answer is lost."""

    async def scenario() -> None:
        async with Relay() as relay:
            with relay.behind() as broker:
                async with Cluster(settings_for(relay.address, default_api_timeout_ms=10_000)) as cluster:
                    box = Box(cluster, await create_topic(cluster, unique))
                    await create_topic(cluster, box.letters_topic)
                    await produce(cluster, box.topic, [b"0", b"1", b"2"])
                    relay.lose_answer(broker, box.letters_topic)
                    assert await box.copy(rejected(box.name, 1, 2)) == 2
                    assert await box.sources() == [1, 2]

    run(scenario())


def test_a_dead_letter_topic_that_is_missing_is_named_with_the_cure(broker: Broker, unique: str) -> None:
    async def scenario() -> None:
        async with Cluster(settings_for(broker)) as cluster:
            with pytest.raises(OutcomeError, match=f"headrace topic create {unique}"):
                await copy_rejected(cluster, [rejected("orders", 0)], unique, "g")

    run(scenario())
