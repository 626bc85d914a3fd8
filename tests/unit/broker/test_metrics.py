"""Counters, gauges and histograms by name and labels."""

from headrace.broker.metrics import BUCKETS, MetricsRegistry, Sample
from tests.unit.work import operations


def only(metrics: MetricsRegistry) -> Sample:
    (sample,) = metrics.snapshot()
    return sample


def test_a_counter_adds_up_under_its_name_and_labels() -> None:
    metrics = MetricsRegistry()
    metrics.count("acks", ack_type="Accept", group="g")
    metrics.count("acks", 4, group="g", ack_type="Accept")
    assert only(metrics) == Sample("acks", "counter", {"ack_type": "Accept", "group": "g"}, 5)


def test_series_of_other_labels_are_counted_apart() -> None:
    metrics = MetricsRegistry()
    metrics.count("acks", group="a")
    metrics.count("acks", group="b")
    assert [sample.labels for sample in metrics.snapshot()] == [{"group": "a"}, {"group": "b"}]


def test_a_counter_held_on_to_is_the_same_series() -> None:
    metrics = MetricsRegistry()
    counter = metrics.counter("fetches", topic="t")
    counter.add()
    metrics.count("fetches", topic="t")
    assert counter.value == only(metrics).value == 2


def test_a_gauge_is_asked_at_each_snapshot() -> None:
    metrics = MetricsRegistry()
    sessions = [1]
    metrics.gauge("sessions", lambda: len(sessions))
    assert only(metrics).value == 1
    sessions.append(2)
    assert only(metrics).value == 2


def test_an_observation_falls_into_the_first_bucket_that_holds_it() -> None:
    metrics = MetricsRegistry()
    for value in (0, 1, 1.5, 10**9):
        metrics.observe("load_ms", value)
    sample = only(metrics)
    counts = {bound: count for bound, count in zip(BUCKETS, sample.counts, strict=False) if count}
    assert counts == {0.1: 1, 1: 1, 2.5: 1}
    assert (sample.counts[-1], sum(sample.counts), sample.highest) == (1, 4, 10**9)
    assert sample.value == 2.5 + 10**9


def test_what_has_all_of_the_labels_is_forgotten() -> None:
    metrics = MetricsRegistry()
    metrics.count("a", group="g", topic="t")
    metrics.count("a", group="other", topic="t")
    metrics.gauge("b", lambda: 1, group="g")
    metrics.observe("c", 1, group="g", topic="t")
    metrics.forget(group="g", topic="t")
    assert [sample.name for sample in metrics.snapshot()] == ["a", "b"]
    metrics.forget(group="g")
    assert [(sample.name, sample.labels["group"]) for sample in metrics.snapshot()] == [("a", "other")]


def test_forgetting_a_series_costs_the_same_however_many_others_there_are() -> None:
    def cost(others: int) -> int:
        metrics = MetricsRegistry()
        for partition in range(others):
            metrics.count("acks", group="g", topic="t", partition=partition)
            metrics.gauge("in flight", lambda: 1, group="g", topic="t", partition=partition)
        return operations(lambda: metrics.forget(group="g", topic="t", partition=5))

    assert cost(1000) == cost(100)


def test_what_was_forgotten_is_gone_from_every_table_and_may_come_again() -> None:
    metrics = MetricsRegistry()
    for name in ("a", "b"):
        metrics.count("acks", group=name, topic="t")
        metrics.observe("time", 1, group=name)
        metrics.gauge("size", lambda: 1, group=name)
    metrics.forget(group="a")
    metrics.forget(group="a")
    assert {sample.labels["group"] for sample in metrics.snapshot()} == {"b"}
    metrics.count("acks", group="a", topic="t")
    metrics.forget(topic="t")
    assert {sample.name for sample in metrics.snapshot()} == {"time", "size"}
