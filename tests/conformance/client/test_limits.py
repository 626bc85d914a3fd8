"""How many records a consumer takes: max.poll.records, record_limit, max.unacknowledged, and sharing with others."""

from headrace.client.delivery import Delivery
from tests.conformance.client.conftest import NewConsumer
from tests.conformance.client.steps import nothing_comes, one_poll, take, values
from tests.conformance.share.share_client import new_queue
from tests.conformance.wire_client import WireClient


def test_a_poll_returns_whole_record_batches(wire: WireClient, consumer: NewConsumer, unique: str) -> None:
    new_queue(wire, unique, 5, 5, 5)
    mine = consumer(max_poll_records=6)
    assert [one.offset for one in one_poll(mine)] == list(range(10))
    assert [one.offset for one in one_poll(mine)] == list(range(10, 15))


def test_record_limit_returns_never_more_than_asked_for(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 5, 5)
    mine = consumer(share_acquire_mode="record_limit", max_poll_records=3)
    assert [len(one_poll(mine)) for _ in range(4)] == [3, 3, 3, 1]
    assert nothing_comes(mine)


def test_record_limit_leaves_the_rest_to_others(wire: WireClient, consumer: NewConsumer, unique: str) -> None:
    new_queue(wire, unique, 4)
    settings = {"share_acquire_mode": "record_limit", "max_poll_records": 1}
    first, second = consumer(**settings), consumer(**settings)
    found = [one_poll(first)[0].offset, one_poll(second)[0].offset]
    found += [one_poll(first)[0].offset, one_poll(second)[0].offset]
    assert sorted(found) == [0, 1, 2, 3]


def test_records_are_held_over_polls_up_to_the_bound(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 10)
    mine = consumer(share_acknowledgement_mode="explicit", max_unacknowledged=4)
    held = take(mine, 4)
    assert nothing_comes(mine, 0.3)
    held[1].accept()
    held[2].release()
    assert len(take(mine, 2)) == 2
    assert nothing_comes(mine, 0.3)


def test_an_answer_to_a_held_record_goes_out_without_another_poll(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 2)
    mine = consumer(share_acknowledgement_mode="explicit", max_unacknowledged=1)
    (delivery,) = take(mine, 1)
    delivery.release()
    assert {one.offset for one in take(consumer(), 2)} == {0, 1}


def test_two_consumers_share_a_queue_without_a_double(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, *[10] * 12, partitions=2)
    members = [consumer(max_poll_records=10) for _ in range(2)]
    taken: list[Delivery] = []
    while len(taken) < 240:
        for member in members:
            taken += member.poll(0.2)
    assert len({(one.partition, one.offset) for one in taken}) == 240
    assert {one.delivery_count for one in taken} == {1}
    assert set(values(taken)) == {str(number).encode() for number in range(10)}
