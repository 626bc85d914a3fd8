"""Goal: an administrator frees a record whose holder is stuck. Method: a real core, members that speak to it."""

import pytest

from headrace.broker.share.intervene import release_record
from headrace.broker.topics import Topic
from headrace.wire.errors import ErrorCode, KafkaError
from tests.unit.broker.share.bench import ACCEPT, GROUP, Bench, Member
from tests.unit.broker.share.test_view import reset


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def topic(bench: Bench) -> Topic:
    topic = bench.core.topics.create("orders", partitions=1, configs={})
    bench.produce(topic, 5)
    reset(bench, "orders", 0)
    return topic


def test_a_released_record_goes_to_the_next_who_asks(bench: Bench, topic: Topic) -> None:
    ann, bob = Member(bench, "ann"), Member(bench, "bob", connection_id=2)
    assert ann.take(topic) == [(0, 4, 1)]
    assert release_record(bench.core, GROUP, "orders", 0, 2) == "ann"
    assert bob.take(topic) == [(2, 2, 2)]


def test_the_holder_is_refused_when_it_answers_later(bench: Bench, topic: Topic) -> None:
    ann = Member(bench, "ann")
    ann.take(topic)
    release_record(bench.core, GROUP, "orders", 0, 2)
    assert ann.settle(topic, (2, 2, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE


def test_a_record_that_nobody_holds_is_refused(bench: Bench, topic: Topic) -> None:
    Member(bench, "ann")
    with pytest.raises(KafkaError, match="record 2 of orders-0 is not acquired") as refusal:
        release_record(bench.core, GROUP, "orders", 0, 2)
    assert refusal.value.code is ErrorCode.INVALID_RECORD_STATE


def test_an_unknown_topic_is_refused(bench: Bench, topic: Topic) -> None:
    with pytest.raises(KafkaError) as refusal:
        release_record(bench.core, GROUP, "nothing", 0, 2)
    assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_records_are_counted_for_each_member_until_its_session_ends(bench: Bench, topic: Topic) -> None:
    ann = Member(bench, "ann")
    ann.take(topic)
    ann.acknowledge(topic, (0, 2, ACCEPT))
    leader = bench.core.share_leader
    assert (leader.handed[GROUP, "ann"], leader.answered[GROUP, "ann"]) == (5, 3)
    ann.fetch(topic, epoch=-1)
    assert not leader.handed
    assert not leader.answered


def test_acknowledgements_are_counted_by_group_and_type(bench: Bench, topic: Topic) -> None:
    ann = Member(bench, "ann")
    ann.take(topic)
    ann.acknowledge(topic, (0, 2, ACCEPT))
    assert (
        bench.core.metrics.counter("RecordAcknowledgementsPerSec", group=GROUP, ack_type="Accept").value == 3
    )


def test_requests_and_how_much_of_them_was_served_are_measured(bench: Bench, topic: Topic) -> None:
    ann = Member(bench, "ann")
    ann.take(topic)
    ann.acknowledge(topic, (0, 2, ACCEPT))
    metrics = bench.core.metrics
    assert metrics.counter("RequestsPerSec", request="ShareFetch").value == 1
    assert metrics.counter("RequestsPerSec", request="ShareAcknowledge").value == 1
    ratio = metrics.histogram("RequestTopicPartitionsFetchRatio", group=GROUP)
    assert (ratio.count, ratio.total) == (1, 100)
    assert metrics.histogram("TopicPartitionsAcquireTimeMs", group=GROUP).count == 1


def test_a_request_that_is_refused_as_a_whole_is_counted(bench: Bench, topic: Topic) -> None:
    refused = Member(bench, "ann").fetch(topic, epoch=7)
    assert refused.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert bench.core.metrics.counter("FailedShareFetchRequestsPerSec").value == 1


def test_what_was_measured_for_a_deleted_group_goes_with_it(bench: Bench, topic: Topic) -> None:
    Member(bench, "ann").take(topic)
    bench.core.share_leader.forget_group(GROUP)
    assert [sample for sample in bench.core.metrics.snapshot() if sample.labels.get("group") == GROUP] == []
    bench.core.share_leader.note_fetch(GROUP, 50.0, 1.0)  # by a fetch that was under way
    assert [sample for sample in bench.core.metrics.snapshot() if sample.labels.get("group") == GROUP] == []
    Member(bench, "ann").take(topic)
    assert bench.core.metrics.histogram("RequestTopicPartitionsFetchRatio", group=GROUP).count == 1


def test_what_was_counted_for_a_deleted_topic_goes_with_it(bench: Bench, topic: Topic) -> None:
    bench.core.count_produced("orders", 5, 500)
    assert bench.core.metrics.counter("BytesInPerSec", topic="orders").value == 500
    bench.core.topics.delete(topic.name)
    bench.core.count_produced("orders", 1, 10)
    assert bench.core.metrics.counter("MessagesInPerSec", topic="orders").value == 1
