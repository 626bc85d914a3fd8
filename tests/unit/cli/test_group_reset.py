"""Topics and plans of a reset are read as Apache's tool reads them."""

import pytest
import typer

from headrace.cli.group_reset import parse_topic
from headrace.cli.group_reset_plans import parse_plan


def test_a_topic_may_name_partitions() -> None:
    assert parse_topic("orders") == ["orders"]
    assert parse_topic("orders:0,2") == [("orders", 0), ("orders", 2)]


@pytest.mark.parametrize("wrong", ["orders:", "orders:x", "orders:1,"])
def test_what_is_no_topic_is_named(wrong: str) -> None:
    with pytest.raises(typer.BadParameter, match=wrong):
        parse_topic(wrong)


def test_a_plan_may_name_its_group() -> None:
    assert parse_plan(['"orders",0,42', "mailers,orders,1,7", ""], "mailers") == {
        ("orders", 0): 42,
        ("orders", 1): 7,
    }


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["orders,0"], r"line 1 \('orders,0'\): expected TOPIC,PARTITION,OFFSET"),
        (["orders,0,5", "orders,x,5"], "line 2 .*expected"),
        (["orders,0,-1"], "expected"),
        ([",0,1"], "expected"),
        (["others,orders,0,1"], "it is for group 'others', not for 'mailers'"),
        (["orders,0,1", "orders,0,2"], "partition 0 of 'orders' is named twice"),
        ([], "the file has no lines"),
    ],
)
def test_a_line_that_is_no_plan_is_named(lines: list[str], message: str) -> None:
    with pytest.raises(typer.BadParameter, match=message):
        parse_plan(lines, "mailers")
