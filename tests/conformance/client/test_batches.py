"""`batches()`: the records of a poll as rows of Arrow, and answers by mask."""

import asyncio
import threading
import time

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headrace.client.aio import AsyncShareConsumer
from headrace.client.batches import DeliveryBatch
from headrace.client.delivery import TopicPartition
from headrace.client.errors import IllegalStateError
from headrace.client.sync import ShareConsumer
from tests.conformance.client.conftest import NewConsumer
from tests.conformance.client.steps import nothing_comes, one_poll, places
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.share.share_client import fill, new_queue
from tests.conformance.wire_client import WireClient

EXPLICIT = {"share_acknowledgement_mode": "explicit"}


def next_batch(consumer: ShareConsumer) -> DeliveryBatch:
    return next(consumer.batches(timeout=60))


def test_the_records_of_a_poll_are_rows(wire: WireClient, consumer: NewConsumer, unique: str) -> None:
    new_queue(wire, unique, 2, 1)
    batch = next_batch(consumer())
    rows = batch.records.to_pylist()
    assert len(batch) == 3
    assert [row["value"] for row in rows] == [b"0", b"1", b"0"]
    assert [(row["topic"], row["partition"], row["offset"]) for row in rows] == [
        (unique, 0, offset) for offset in range(3)
    ]
    assert [row["deliveryCount"] for row in rows] == [1, 1, 1]
    assert batch.lost.to_pylist() == [False] * 3


def test_an_implicit_consumer_accepts_a_batch_with_the_next_one_and_not_before(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 3)
    mine = consumer()
    batch = next_batch(mine)
    with pytest.raises(IllegalStateError, match="Implicit"):
        batch.accept()
    fill(wire, unique, 2)
    assert next_batch(mine).records["offset"].to_pylist() == [3, 4]
    mine.close()  # gives the second back
    assert [(partition, offset) for partition, offset, _ in places(one_poll(consumer()))] == [(0, 3), (0, 4)]


def test_masks_say_what_becomes_of_single_rows(wire: WireClient, consumer: NewConsumer, unique: str) -> None:
    new_queue(wire, unique, 6)
    mine = consumer(**EXPLICIT)
    batch = next_batch(mine)
    offsets = batch.records["offset"]
    batch.reject(pc.equal(offsets, 1))
    batch.release([False, False, True, False, True, False])
    batch.accept()  # the rest
    assert mine.commit_sync() == {TopicPartition(unique, 0): None}
    again = next_batch(mine)
    assert again.records.select(["offset", "deliveryCount"]).to_pylist() == [
        {"offset": 2, "deliveryCount": 2},
        {"offset": 4, "deliveryCount": 2},
    ]
    again.accept(pa.array([True, True]))
    assert mine.commit_sync() == {TopicPartition(unique, 0): None}
    assert nothing_comes(mine)


def test_an_explicit_consumer_insists_on_an_answer_for_every_row(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 3)
    mine = consumer(**EXPLICIT)
    batch = next_batch(mine)
    batch.accept([True, False, None])
    with pytest.raises(IllegalStateError, match="must be acknowledged"):
        next_batch(mine)
    batch.accept()
    fill(wire, unique, 1)
    assert next_batch(mine).records["offset"].to_pylist() == [3]


def test_rows_whose_answer_was_sent_cannot_be_answered_again_and_no_other_row_of_the_mask_is(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 2)
    mine = consumer(**EXPLICIT, max_unacknowledged=10)
    batch = next_batch(mine)
    batch.accept([True, False])
    mine.commit_sync()
    with pytest.raises(IllegalStateError, match="None of them"):
        batch.reject([True, True])
    batch.accept([False, True])
    mine.commit_sync()
    mine.close()
    assert nothing_comes(consumer())


def test_rows_are_released_later(wire: WireClient, consumer: NewConsumer, unique: str) -> None:
    new_queue(wire, unique, 4)
    mine = consumer(**EXPLICIT)
    batch = next_batch(mine)
    released = time.monotonic()
    batch.release([False, True, False, True], after=1.2)
    batch.accept()
    again = next_batch(mine)
    assert time.monotonic() - released >= 1.2
    assert again.records["offset"].to_pylist()[:1] == [1]
    assert set(again.records["deliveryCount"].to_pylist()) == {2}
    again.accept()


def test_an_iteration_over_batches_ends_with_its_time_or_with_wakeup(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 1)
    mine = consumer()
    assert len(next_batch(mine)) == 1
    assert list(mine.batches(timeout=0.5)) == []
    threading.Timer(0.2, mine.wakeup).start()
    assert list(mine.batches()) == []


def test_records_of_a_broken_iteration_cannot_become_rows(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 2)
    mine = consumer()
    for _ in mine:
        break
    with pytest.raises(IllegalStateError, match=r"call poll\(\)"):
        next_batch(mine)
    assert len(mine.poll(0)) == 1


def test_with_asyncio_the_same(broker: BrokerUnderTest, wire: WireClient, unique: str) -> None:
    new_queue(wire, unique, 3)

    async def run() -> None:
        async with AsyncShareConsumer(
            bootstrap_servers=broker.bootstrap_servers, group_id=unique, **EXPLICIT
        ) as mine:
            mine.subscribe([unique])
            seen = []
            async for batch in mine.batches(timeout=30):
                seen.append(batch.records["offset"].to_pylist())
                if len(seen) == 2:
                    batch.accept()
                    break
                batch.release([False, True, False])
                batch.accept()
            assert await mine.commit_sync() == {TopicPartition(unique, 0): None}
            assert seen == [[0, 1, 2], [1]]
            assert [len(batch) async for batch in mine.batches(timeout=0.3)] == []

    asyncio.run(run())
