"""Goal: patterns and names become the topics that are there."""

import pytest

from headrace.broker.groups.subscriptions import (
    compile_pattern,
    fingerprint,
    resolve,
    subscribed_names,
    topic_ids,
)
from headrace.wire.errors import ErrorCode, KafkaError
from tests.unit.broker.groups.fake_core import FakeTopics


@pytest.fixture
def topics() -> FakeTopics:
    topics = FakeTopics()
    for name in ("orders-eu", "orders-us", "payments", "__consumer_offsets"):
        topics.create(name, 2)
    return topics


def test_a_pattern_must_match_the_whole_name(topics: FakeTopics) -> None:
    assert resolve("orders-.*", topics) == {"orders-eu", "orders-us"}
    assert resolve("orders", topics) == frozenset()


def test_a_pattern_sees_internal_topics_as_in_kafka(topics: FakeTopics) -> None:
    assert "__consumer_offsets" in resolve(".*", topics)


@pytest.mark.parametrize("pattern", ["(", "a**", "[z-a]", r"(a)\1", "(?=a)", "(?<!a)b", "*a"])
def test_what_re2j_refuses_is_refused(pattern: str) -> None:
    with pytest.raises(KafkaError) as refusal:
        compile_pattern(pattern)
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_pattern_that_would_keep_a_backtracking_matcher_busy_for_years_does_not(topics: FakeTopics) -> None:
    topics.create("a" * 249)
    assert resolve("(a+)+b", topics) == frozenset()


def test_names_that_do_not_exist_have_no_ids(topics: FakeTopics) -> None:
    known = topics.get("payments")
    assert known is not None
    assert topic_ids(["payments", "nowhere"], topics) == {known.id}


def test_the_fingerprint_follows_the_topics_that_are_read(topics: FakeTopics) -> None:
    before = fingerprint(["payments", "nowhere"], topics)
    topics.create("elsewhere")
    assert fingerprint(["payments", "nowhere"], topics) == before
    topics.create("nowhere")
    assert fingerprint(["payments", "nowhere"], topics) != before


def test_an_unresolved_pattern_stands_for_nothing() -> None:
    names = frozenset({"payments"})
    assert subscribed_names(names, "o.*", {}) == names
    assert subscribed_names(names, "o.*", {"o.*": frozenset({"orders"})}) == {"payments", "orders"}
