"""Which series are on which chart."""

from headrace.web.charts import SERIES_MAX, group_charts, overview_charts
from headrace.web.history import History


def test_the_overview_has_the_busiest_topics_and_the_lag_of_share_groups_only() -> None:
    history = History()
    topics = {("in", f"topic-{number}"): float(number) for number in range(10)}
    history.record(1.0, {**topics, ("lag", "kitchen"): 5, ("lag", "billing"): 9})
    flow, lag = overview_charts(history, {"kitchen"}).charts
    assert [series.name for series in flow.series] == [f"topic-{9 - rank}" for rank in range(SERIES_MAX)]
    assert [(series.name, series.values) for series in lag.series] == [("kitchen", (5,))]


def test_a_group_that_is_seen_live_has_acknowledgements_by_type() -> None:
    history = History()
    history.record(1.0, {("lag", "g"): 5, ("acknowledged", "g", "Accept"): 7.0, ("time-outs", "g"): 1.0})
    charts = {chart.id: chart for chart in group_charts(history, "g", is_live=True).charts}
    assert {series.name: series.values[0] for series in charts["acknowledged"].series} == {
        "accept": 7.0,
        "release": None,
        "reject": None,
        "renew": None,
        "lock time-outs": 1.0,
    }
    assert set(charts) == {"lag", "acknowledged", "in-flight"}


def test_a_group_that_is_seen_from_outside_has_what_any_kafka_tells() -> None:
    history = History()
    history.record(1.0, {("lag", "g"): 5, ("done", "g"): 3.0})
    charts = {chart.id: chart for chart in group_charts(history, "g", is_live=False).charts}
    assert set(charts) == {"lag", "done"}
    assert charts["done"].series[0].values == (3.0,)
