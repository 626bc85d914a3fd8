"""What a Connect client's plan tells of operators that would drop a released record, and of a topic's groups. (On
classic Spark: tests/spark/test_outcomes_on_spark.py.)"""

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from headrace.spark.errors import OptionError
from headrace.spark.options import OUTCOMES
from headrace.spark.plan import require_one_group, require_redeliveries_pass

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")  # pandas 3, says pyspark 4.3


@pytest.fixture
def plan() -> ModuleType:
    from pyspark.sql.connect import plan

    return plan


def source(plan: Any, name: str = "kafka-share") -> Any:
    return plan.DataSource(format=name, is_streaming=True)


def check(node: Any) -> None:
    require_redeliveries_pass(SimpleNamespace(_plan=node), OUTCOMES)  # type: ignore[arg-type]


def test_duplicates_that_are_dropped_without_the_delivery_count_are_refused(plan: Any) -> None:
    node = plan.Deduplicate(plan.Limit(source(plan), 5), column_names=["value"])
    with pytest.raises(OptionError, match="without deliveryCount"):
        check(plan.Limit(node, 3))


def test_duplicates_that_are_dropped_with_a_watermark_are_refused(plan: Any) -> None:
    late = plan.WithWatermark(source(plan), "timestamp", "1 second")
    with pytest.raises(OptionError, match="with a watermark"):
        check(plan.Deduplicate(late, column_names=["value", "deliveryCount"]))


@pytest.mark.parametrize(
    "made",
    [
        lambda plan: plan.Deduplicate(source(plan), column_names=["value", "deliveryCount"]),
        lambda plan: plan.Deduplicate(source(plan), all_columns_as_keys=True),
        lambda plan: plan.Deduplicate(source(plan, "rate"), column_names=["value"]),
        lambda plan: plan.SetOperation(
            source(plan), plan.Deduplicate(source(plan, "rate"), column_names=["value"]), "union"
        ),
    ],
    ids=["delivery count", "all columns", "another source", "another source beside ours"],
)
def test_what_drops_no_released_record_passes(plan: Any, made: Callable[[Any], Any]) -> None:
    check(made(plan))


def reading(plan: Any, topics: str, group: str) -> Any:
    options = {"kafka.bootstrap.servers": "h:1", "subscribe": topics, "kafka.group.id": group}
    return plan.DataSource(format="kafka-share", is_streaming=True, options=options)


def test_a_topic_under_two_groups_is_refused(plan: Any) -> None:
    node = plan.SetOperation(reading(plan, "sms,orders", "a"), reading(plan, "orders", "b"), "union")
    with pytest.raises(OptionError, match=r"topic 'orders' under groups 'a' and 'b'"):
        require_one_group(SimpleNamespace(_plan=plan.Limit(node, 3)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("topics", "group"), [("orders", "a"), ("sms", "b")], ids=["same group", "other topic"]
)
def test_several_sources_whose_outcomes_are_clear_pass(plan: Any, topics: str, group: str) -> None:
    node = plan.SetOperation(reading(plan, "orders", "a"), reading(plan, topics, group), "union")
    require_one_group(SimpleNamespace(_plan=node))  # type: ignore[arg-type]
