"""`headrace state` and `headrace top` on both brokers: what a share group has done, drawn and raw."""

import json
import re
from collections.abc import Callable, Mapping

import pytest

from headrace import Admin, ShareConsumer
from tests.conformance.cli.conftest import Command
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.steps import wait_for


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")


def test_a_window_is_drawn_with_what_became_of_its_records(run: Command, unique: str) -> None:
    run("topic", "create", unique)
    run("produce", unique, "--perf", "--count", "6", "--size", "5")
    run("consume", unique, "-g", unique, "--from-beginning", "--max", "1", "--release")
    run("consume", unique, "-g", unique, "--max", "1", "--release")
    drawn = run("state", unique)
    assert drawn.out.splitlines()[0] == f"Share group {unique}: Empty, 0 members"
    assert f"{unique}-0  starts at 0 · 6 records left to do · the log ends at 6" in drawn.out
    assert "0    available     1 record   delivered 2 times" in drawn.out
    assert "1-5  open          5 records" in drawn.out
    assert "□ available: to be delivered again" in drawn.out
    run("consume", unique, "-g", unique, "--max", "1", "--reject")
    run("consume", unique, "-g", unique, "--max", "5")
    assert "nothing left to do" in run("state", unique).out
    (state,) = run("state", unique, "--json", "-t", f"{unique}:0").json
    assert (state["topic"], state["lag"], state["is_live"]) == (unique, 0, False)


def test_raw_records_are_those_of_apache_s_formatter(run: Command, unique: str) -> None:
    run("topic", "create", unique)
    run("produce", unique, "--perf", "--count", "2", "--size", "5")
    run("consume", unique, "-g", unique, "--from-beginning", "--max", "2")
    records = [json.loads(line) for line in run("state", unique, "--raw").out.splitlines()]
    assert records[0]["key"]["type"] == 0
    assert {record["key"]["data"]["groupId"] for record in records} == {unique}
    batches = [batch for record in records for batch in record["value"]["data"]["stateBatches"]]
    assert {"firstOffset": 0, "lastOffset": 1, "deliveryState": 2, "deliveryCount": 1} in batches


def test_a_window_of_the_past_says_who_held_its_records(
    broker: BrokerUnderTest, broker_with: Callable[[Mapping[str, object]], BrokerUnderTest], unique: str
) -> None:
    """Apache Kafka writes no members, and the command says so. The clock of the shared broker may be in the future."""
    servers = (broker if broker.is_apache else broker_with({})).bootstrap_servers
    run = Command(servers)
    run("topic", "create", unique)
    run("produce", unique, "--perf", "--count", "6", "--size", "5")
    run("group", "config", "set", unique, "share.auto.offset.reset=earliest")
    with (
        Admin(bootstrap_servers=servers) as admin,
        ShareConsumer(
            bootstrap_servers=servers,
            group_id=unique,
            client_id="press-1",
            share_acknowledgement_mode="explicit",
        ) as member,
    ):
        member.subscribe([unique])
        held = wait_for(lambda: member.poll(timeout=5.0))
        held[1].reject()
        for one in (held[0], *held[2:]):
            one.renew()
        member.commit_sync()
        first = admin.share_state_records(unique)[-1]
        for one in (held[0], *held[2:]):
            one.accept()
        member.commit_sync()
        last = admin.share_state_records(unique)[-1]
    before, after = (run("state", unique, "--at", str(one.timestamp)) for one in (first, last))
    if not first.holds:
        assert broker.is_apache
        assert (
            "Who held records is unknown: `__share_group_state` names no members. Apache Kafka" in before.err
        )
        return
    name = "press-1@127.0.0.1"
    assert re.search(
        rf" 0 +acquired +1 record +delivered once, held by {name} for \d+\.\d s by then", before.out
    )
    assert re.search(rf" 1 +archived +1 record +delivered once, rejected \({name}, after \d", before.out)
    assert "Who held records is written when the hold ends" in before.err
    assert re.search(rf"  Ended before:\n  \d\d:\d\d:\d\d  2-5  accepted \({name}, after \d", after.out)
    (state,) = run("state", unique, "--json", "--at", str(first.timestamp)).json
    assert [(one["first"], one["last"], one["client_id"], one["end"]) for one in state["ended"]] == [
        (1, 1, "press-1", "rejected")
    ]
    assert {one["past"]["client_host"] for one in state["runs"]} == {"/127.0.0.1"}


def test_a_record_is_explained(run: Command, unique: str) -> None:
    run("topic", "create", unique)
    run("produce", unique, "--perf", "--count", "4", "--size", "5")
    run("consume", unique, "-g", unique, "--from-beginning", "--max", "1")
    run("consume", unique, "-g", unique, "--max", "1", "--release")
    said = run("explain", f"{unique}/0/0", "-g", unique).out
    assert said.startswith(f"{unique}-0@0 is settled for {unique}.\nBelow the start offset 1")
    available = run("explain", f"{unique}/0/1", "--group", unique, "--json").json
    assert available["state"] == "available"
    assert available["explanation"].endswith(
        "It was delivered once of at most 5. The group has no members now."
    )
    assert run("explain", f"{unique}/0/9", "-g", unique, "--json").json["state"] == "not there"
    assert f"there is no topic '{unique}-x'" in run.refused("explain", f"{unique}-x/0/0", "-g", unique)
    assert "is in the future" in run("state", unique, "--at", "2999-01-01", status=2).err
    assert "is not a record; expected TOPIC/PARTITION/OFFSET" in run.refused(
        "explain", f"{unique}/0", "-g", unique
    )


def test_a_record_that_was_released_and_is_held_again_is_not_called_available(
    run: Command, join: Callable[..., ShareConsumer], unique: str
) -> None:
    run("topic", "create", unique)
    run("produce", unique, "--perf", "--count", "4", "--size", "5")
    run("consume", unique, "-g", unique, "--from-beginning", "--max", "4", "--release")
    member = join(unique, unique)
    held = wait_for(lambda: member.poll(timeout=5.0))
    assert [(one.offset, one.delivery_count) for one in held][:1] == [(0, 2)]
    said = run("explain", f"{unique}/0/0", "-g", unique).out
    assert said == (
        f"{unique}-0@0 is unknown for {unique}.\nIt was written as available, after it was delivered once of at most 5."
        " It waits for a fetch, or a member holds it. Only the broker knows locks.\n"
    )


def test_an_unknown_group_is_refused(run: Command, unique: str) -> None:
    assert f"there is no group '{unique}'" in run.refused("state", unique)


def test_top_says_that_a_group_whose_members_hold_records_has_settled_nothing(
    run: Command, join: Callable[..., ShareConsumer], orders: str, unique: str
) -> None:
    run("consume", orders, "-g", f"{unique}-a", "--from-beginning", "--max", "10")
    run("group", "config", "set", f"{unique}-z", "share.auto.offset.reset=earliest")
    member = join(f"{unique}-z", orders)
    wait_for(lambda: member.poll(timeout=5.0))
    groups = run("top", "--json", "--interval", "0.2").json["groups"]
    shown = {one["group_id"]: one["reasons"] for one in groups if one["group_id"].startswith(unique)}
    assert list(shown) == [f"{unique}-z", f"{unique}-a"]
    assert shown[f"{unique}-z"] == ["Nothing settled yet: members may hold records, the lag is not known"]


def test_top_prints_once_for_scripts(run: Command, orders: str, unique: str) -> None:
    run("consume", orders, "-g", unique, "--from-beginning", "--max", "10")
    said = run("top", "--once", "--interval", "0.2")
    assert [unique, "Share", "Empty", "0", "0"] in [row[:5] for row in said.rows]
    assert [orders, "2", "10", "0.0"] in said.rows
    overview = run("top", "--json", "--interval", "0.2").json
    assert unique in {group["group_id"] for group in overview["groups"]}
