"""Who lets go of records is written with their state: by whom, since when, and how. Method: a real core, and members
that speak to it; the records are read back from the log.
"""

from typing import Any

import pytest

from headrace.broker.call import Call
from headrace.broker.share.intervene import release_record
from headrace.broker.share.view import group_view
from headrace.broker.topics import Topic
from headrace.share.holds import PastHold
from headrace.wire.records import read_records
from headrace.wire.share_holds import holds_of
from headrace.wire.share_state import STATE_TOPIC, Snapshot, decode
from tests.unit.broker.share.bench import ACCEPT, GROUP, REJECT, RELEASE, RENEW, Bench, Member
from tests.unit.broker.share.test_view import reset


@pytest.fixture
def bench() -> Bench:
    return Bench(**{"share.coordinator.state.topic.num.partitions": 1})


@pytest.fixture
def topic(bench: Bench) -> Topic:
    topic = bench.core.topics.create("orders", partitions=1, configs={})
    bench.produce(topic, 20)
    reset(bench, "orders", 0)
    return topic


class Named(Member):
    def _call(self, version: int = 2) -> Call:
        return super()._call(version)._replace(client_id=f"client-{self.name}", client_host="/10.0.0.7")


def written(bench: Bench) -> list[PastHold]:
    log = bench.core.topics.internal(STATE_TOPIC).partitions[0].log
    found = []
    for batch in log.reader.batches():
        for record in read_records(batch):
            decoded = decode(record.key or b"", record.value)
            if decoded is not None and decoded[1] is not None:
                found += holds_of(decoded[1], record.timestamp)
    return found


def told(bench: Bench) -> list[tuple[int, int, str, str]]:
    return [(one.first, one.last, one.member_id, one.words) for one in written(bench)]


def about(*held_ms: int) -> Any:
    """The clock of a bench goes on by itself, too."""
    return pytest.approx(held_ms, abs=900)


def test_answers_name_the_member_and_for_how_long_it_had_the_records(bench: Bench, topic: Topic) -> None:
    ann = Named(bench, "ann")
    ann.take(topic)
    assert written(bench) == []
    bench.advance(2)
    ann.settle(topic, (0, 4, ACCEPT), (5, 5, RELEASE), (6, 6, REJECT), (7, 7, 0))
    assert told(bench) == [
        (0, 4, "ann", "accepted"),
        (5, 5, "ann", "released"),
        (6, 6, "ann", "rejected"),
        (7, 7, "ann", "no record found"),
    ]
    assert [one.held_ms for one in written(bench)] == about(2_000, 2_000, 2_000, 2_000)
    assert {(one.client_id, one.client_host) for one in written(bench)} == {("client-ann", "/10.0.0.7")}


def test_a_hold_goes_on_while_its_lock_is_renewed(bench: Bench, topic: Topic) -> None:
    ann = Named(bench, "ann")
    ann.take(topic, records_max=5)
    bench.advance(5)
    ann.take(topic, records_max=5)
    bench.advance(20)
    ann.settle(topic, (0, 9, RENEW), is_renew=True)
    view = group_view(bench.core, GROUP)["orders", 0]
    assert [(run.first, run.last, run.renewals) for run in view.runs] == [(0, 4, 1), (5, 9, 1)]
    assert [run.held_ms for run in view.runs] == about(25_000, 20_000)
    bench.configure(
        share_record_lock_duration_ms="60000"
    )  # what a lock lasts now says nothing of one taken before
    bench.advance(20)
    ann.settle(topic, (0, 9, ACCEPT))
    assert told(bench) == [(0, 4, "ann", "accepted"), (5, 9, "ann", "accepted")]
    assert [one.held_ms for one in written(bench)] == about(45_000, 40_000)


def test_locks_that_run_out_name_each_of_their_holders_once(bench: Bench, topic: Topic) -> None:
    ann, bob = Named(bench, "ann"), Named(bench, "bob", connection_id=2)
    ann.take(topic, records_max=5)
    bob.take(topic, records_max=5)
    bench.advance(31)
    assert told(bench) == [(0, 4, "ann", "lock timed out"), (5, 9, "bob", "lock timed out")]


def test_a_session_that_ends_is_named_though_it_is_gone(bench: Bench, topic: Topic) -> None:
    ann, bob = Named(bench, "ann"), Named(bench, "bob", connection_id=2)
    ann.take(topic, records_max=5)
    bob.take(topic, records_max=5)
    for disconnected in bench.core.on_disconnect:
        disconnected(2)
    ann.fetch(topic, epoch=-1)
    assert [(one.member_id, one.client_id, one.words) for one in written(bench)] == [
        ("bob", "client-bob", "session closed"),
        ("ann", "client-ann", "session closed"),
    ]
    assert len(bench.core.share_leader.names) == 0


def test_a_record_that_comes_back_for_the_last_time_tells_how(bench: Bench, topic: Topic) -> None:
    bench.configure(share_delivery_count_limit="2")
    ann = Named(bench, "ann")
    ann.take(topic, records_max=5)
    ann.settle(topic, (0, 0, RELEASE), (1, 4, ACCEPT))
    assert ann.take(topic, records_max=1) == [(0, 0, 2)]
    bench.advance(31)
    assert told(bench) == [
        (0, 0, "ann", "released"),
        (1, 4, "ann", "accepted"),
        (0, 0, "ann", "lock timed out"),
    ]


def test_a_record_that_an_operator_releases_was_not_released_by_its_holder(
    bench: Bench, topic: Topic
) -> None:
    Named(bench, "ann").take(topic)
    release_record(bench.core, GROUP, "orders", 0, 3)
    assert told(bench) == [(3, 3, "ann", "released by an operator")]


def test_the_snapshot_in_place_of_an_update_names_them_too(topic: Topic, bench: Bench) -> None:
    ann = Named(bench, "ann")
    ann.take(topic)
    bench.core.share_state._updates_max = 2
    for offset in range(6):
        ann.settle(topic, (2 * offset, 2 * offset, ACCEPT))
    log = bench.core.topics.internal(STATE_TOPIC).partitions[0].log
    bodies = [
        decoded[1]
        for batch in log.reader.batches()
        for record in read_records(batch)
        if (decoded := decode(record.key or b"", record.value)) is not None
    ]
    assert sum(isinstance(body, Snapshot) for body in bodies) > 1
    assert [one.first for one in written(bench)] == [0, 2, 4, 6, 8, 10]


def test_a_session_that_nobody_introduced_is_named_by_its_id() -> None:
    bench = Bench(**{"share.coordinator.state.topic.num.partitions": 1})
    topic = bench.topic()
    bench.produce(topic, 5)
    ann = Member(bench, "ann")
    ann.take(topic)
    ann.settle(topic, (0, 4, ACCEPT))
    assert [(one.member_id, one.client_id) for one in written(bench)] == [("ann", "")]


def test_where_no_history_is_kept_nobody_is_named() -> None:
    bench = Bench(**{"share.coordinator.state.topic.num.partitions": 1, "headrace.share.state.history.ms": 0})
    topic = bench.topic()
    bench.produce(topic, 5)
    ann = Named(bench, "ann")
    ann.take(topic)
    ann.settle(topic, (0, 4, ACCEPT))
    assert written(bench) == []
