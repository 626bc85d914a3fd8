"""`headrace group` on both brokers: Apache's columns, plans before deeds, and refusals that name the cure."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from confluent_kafka import Consumer

from headrace import Producer, ShareConsumer
from tests.conformance.cli.conftest import Command
from tests.conformance.conftest import BrokerUnderTest

Join = Callable[..., ShareConsumer]
OFFSETS = ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"]
MEMBERS = ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT"]


def worked_off(run: Command, topic: str, group: str, number: int = 10) -> None:
    run("consume", topic, "-g", group, "--from-beginning", "--max", str(number))


def test_groups_are_listed_with_type_and_state(run: Command, orders: str, unique: str) -> None:
    worked_off(run, orders, unique)
    other = f"{unique}-c"
    run("consume", orders, "-g", other, "--consumer-group", "--from-beginning", "--max", "1")
    rows = run("group", "list").rows
    assert rows[0] == ["GROUP", "TYPE", "PROTOCOL", "STATE"]
    assert [unique, "Share", "share", "Empty"] in rows
    assert [other, "Classic", "consumer", "Empty"] in rows
    shares = run("group", "list", "--type", "share", "--state", "Empty").rows
    assert [unique, "Share", "share", "Empty"] in shares
    assert not [row for row in shares if row[0] == other]
    assert "choose from" in run("group", "list", "--type", "queue", status=2).err


def test_offsets_of_a_share_group_have_apache_s_columns(run: Command, orders: str, unique: str) -> None:
    worked_off(run, orders, unique)
    rows = run("group", "describe", unique).rows
    assert rows[0] == OFFSETS
    assert [row[1:3] + row[4:] for row in rows[1:]] == [[orders, "0", "0"], [orders, "1", "0"]]
    verbose = run("group", "describe", unique, "--verbose").rows
    assert verbose[0] == ["GROUP", "TOPIC", "PARTITION", "LEADER-EPOCH", "START-OFFSET", "LAG"]
    assert verbose[1][3] == "0"


def test_members_and_state_of_a_share_group_have_apache_s_columns(
    run: Command, orders: str, unique: str, join: Join
) -> None:
    run("group", "config", "set", unique, "share.auto.offset.reset=earliest")
    consumer = join(unique, orders, client_id="waiter")
    while not consumer.poll(timeout=1.0):
        pass
    header, row = run("group", "describe", unique, "--members").rows
    assert header == MEMBERS
    assert row == [unique, consumer.member_id, row[2], "waiter", "2", f"{orders}:0,1"]
    assert "127.0.0.1" in row[2]
    header, row = run("group", "describe", unique, "--members", "-v").rows
    assert header == [*MEMBERS[:-1], "MEMBER-EPOCH", "ASSIGNMENT"]
    assert int(row[5]) > 0
    state = run("group", "describe", unique, "--state", "-v")
    assert state.out.splitlines()[0].split("  ")[0] == "GROUP"
    assert state.rows[0] == [
        *["GROUP", "COORDINATOR", "(ID)", "STATE", "GROUP-EPOCH", "ASSIGNMENT-EPOCH", "#MEMBERS"]
    ]
    assert state.rows[1][0] == unique
    assert state.rows[1][2:4] == ["(1)", "Stable"]
    assert state.rows[1][-1] == "1"
    (described,) = run("group", "describe", unique, "--json").json
    assert (described["type"], described["state"], len(described["offsets"])) == ("share", "Stable", 2)
    assert described["members"][0]["member_id"] == consumer.member_id


def test_a_group_without_members_says_so(run: Command, orders: str, unique: str) -> None:
    worked_off(run, orders, unique, 1)
    said = run("group", "describe", unique, "--members")
    assert (said.out, said.err) == ("", f"Share group '{unique}' has no active members.\n")
    assert run("group", "describe", unique, "--state").rows[1][3:] == ["Empty", "0"]


def test_a_consumer_group_has_the_columns_of_its_own_tool(run: Command, orders: str, unique: str) -> None:
    run("consume", orders, "-g", unique, "--consumer-group", "--from-beginning", "--timeout", "2")
    said = run("group", "describe", unique)
    assert said.rows[0] == [
        *["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"],
        *["CONSUMER-ID", "HOST", "CLIENT-ID"],
    ]
    assert [row[1:6] for row in said.rows[1:]] == [[orders, "0", "5", "5", "0"], [orders, "1", "5", "5", "0"]]
    assert f"Consumer group '{unique}' has no active members." in said.err


def test_a_reset_is_planned_first_and_then_done(run: Command, orders: str, unique: str) -> None:
    worked_off(run, orders, unique)
    planned = run("group", "reset", unique, "--to-earliest")
    assert planned.rows[0] == ["GROUP", "TOPIC", "PARTITION", "OLD-OFFSET", "NEW-OFFSET"]
    assert [row[1:3] + row[4:] for row in planned.rows[1:]] == [[orders, "0", "0"], [orders, "1", "0"]]
    assert "Dry run: nothing was changed. Use --execute to apply it." in planned.err
    assert run("consume", orders, "-g", unique, "--timeout", "1").out == ""
    run("group", "reset", unique, "--to-earliest", "--execute")
    again = run("consume", orders, "-g", unique, "--max", "10", "-f", "%D\\n")
    assert again.out.split() == ["1"] * 10


def test_a_reset_may_name_partitions_offsets_and_times(run: Command, orders: str, unique: str) -> None:
    def planned(*arguments: str) -> dict[str, str]:
        rows = run("group", "reset", unique, "-t", orders, *arguments).rows[1:]
        return {row[2]: row[4] for row in rows}

    assert planned("--to-offset", "3") == {"0": "3", "1": "3"}
    assert planned("--to-latest") == {"0": "5", "1": "5"}
    assert planned("--to-datetime", "2020-01-01T00:00:00") == {"0": "0", "1": "0"}
    assert planned("--to-datetime", "2200-01-01T00:00:00+01:00") == {"0": "5", "1": "5"}
    arguments = ("group", "reset", unique, "-t", f"{orders}:1", "--to-offset", "4", "--execute")
    assert [row[2:] for row in run(*arguments).rows[1:]] == [["1", "-", "4"]]
    assert "offset 6 is not in the log" in run.refused(
        "group", "reset", unique, "-t", orders, "--to-offset", "6"
    )
    assert "there is no partition 2" in run.refused(
        "group", "reset", unique, "-t", f"{orders}:2", "--to-latest"
    )


def test_a_consumer_group_is_reset_too(run: Command, orders: str, unique: str) -> None:
    arguments = ("consume", orders, "-g", unique, "--consumer-group", "-f", "%p@%o\\n")
    run(*arguments, "--from-beginning", "--max", "10")
    planned = run("group", "reset", unique, "--to-earliest")
    assert [row[1:] for row in planned.rows[1:]] == [[orders, "0", "5", "0"], [orders, "1", "5", "0"]]
    assert "Dry run" in planned.err
    done = run("group", "reset", unique, "-t", f"{orders}:1", "--to-offset", "3", "--execute")
    assert [row[1:] for row in done.rows[1:]] == [[orders, "1", "5", "3"]]
    assert run(*arguments, "--max", "2").out.split() == ["1@3", "1@4"]
    assert "offset 9 is not in the log" in run.refused(
        "group", "reset", unique, "-t", orders, "--to-offset", "9"
    )
    assert "has no partition 2" in run.refused("group", "reset", unique, "-t", f"{orders}:2", "--to-latest")


def test_a_share_group_continues_where_a_consumer_group_stopped(
    run: Command, orders: str, unique: str, tmp_path: Path
) -> None:
    """KIP-1323: by the group's name, or by a file that an export wrote."""
    old, new = f"{unique}-old", f"{unique}-new"
    run("consume", orders, "-g", old, "--consumer-group", "--from-beginning", "--max", "10")
    run("group", "reset", old, "-t", f"{orders}:1", "--to-offset", "3", "--execute")
    exported = run("group", "reset", new, "--from-group", old, "--export")
    assert exported.out.splitlines() == [f"{orders},0,5", f"{orders},1,3"]
    plan = tmp_path / "plan.csv"
    plan.write_text(exported.out)
    run("group", "reset", new, "--from-file", str(plan), "--execute")
    assert run("consume", orders, "-g", new, "--max", "2", "-f", "%p@%o\\n").out.split() == ["1@3", "1@4"]
    assert "does not exist" in run.refused("group", "reset", new, "--from-group", f"{unique}-nobody")


def test_a_consumer_group_with_members_is_not_reset(
    run: Command, orders: str, unique: str, broker: BrokerUnderTest
) -> None:
    with closing(
        Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": unique,
                "client.id": "clerk",
                "auto.offset.reset": "earliest",
            }
        )
    ) as consumer:
        consumer.subscribe([orders])
        while consumer.poll(1.0) is None:
            pass
        said = run.refused("group", "reset", unique, "--to-earliest", "--execute")
        assert "has members: clerk at" in said


def test_a_group_that_is_not_there_yet_is_reset_by_topic(run: Command, orders: str, unique: str) -> None:
    assert f"there is no group '{unique}'" in run.refused("group", "reset", unique, "--to-latest")
    run("group", "reset", unique, "--to-offset", "2", "-t", orders, "--execute")
    assert [row[3:] for row in run("group", "describe", unique).rows[1:]] == [["2", "3"], ["2", "3"]]


def test_a_reset_says_where_to(run: Command, orders: str, unique: str) -> None:
    for arguments in ((), ("--to-earliest", "--to-latest"), ("--to-offset", "3")):
        assert "--to-offset" in run("group", "reset", unique, *arguments, status=2).err


def test_a_group_with_members_is_neither_reset_nor_deleted(
    run: Command, orders: str, unique: str, join: Join
) -> None:
    run("group", "config", "set", unique, "share.auto.offset.reset=earliest")
    consumer = join(unique, orders, client_id="waiter")
    while not consumer.poll(timeout=1.0):
        pass
    said = run.refused("group", "reset", unique, "--to-earliest", "--execute")
    assert "waiter" in said
    assert "Stop the group's members first" in said
    assert "Stop the group's members first" in run.refused("group", "delete", unique, "--yes")
    assert "Stop the group's members first" in run.refused(
        "group", "delete-offsets", unique, "-t", orders, "--yes"
    )


def test_a_group_is_deleted(run: Command, orders: str, unique: str) -> None:
    worked_off(run, orders, unique, 1)
    assert (
        run("group", "delete", unique, "--yes").out
        == f"Deletion of requested groups ('{unique}') was successful.\n"
    )
    said = run.refused("group", "describe", unique)
    assert f"there is no group '{unique}'" in said
    assert "a group exists once a consumer has joined it" in said


def test_offsets_are_deleted_by_topic(run: Command, orders: str, unique: str) -> None:
    worked_off(run, orders, unique)
    assert run("group", "delete-offsets", unique, "-t", orders, "--yes").rows == [
        ["TOPIC", "STATUS"],
        [orders, "Successful"],
    ]
    said = run("group", "describe", unique)
    assert f"Share group '{unique}' has no offset information." in said.err


def test_commands_for_share_groups_refuse_others_by_their_type(
    run: Command, orders: str, unique: str
) -> None:
    run("consume", orders, "-g", unique, "--consumer-group", "--from-beginning", "--max", "1")
    for arguments in (("state", unique), ("group", "delete-offsets", unique, "-t", orders)):
        assert f"'{unique}' is a classic group, and this is for share groups" in run.refused(*arguments)


def test_settings_of_a_group_are_set_shown_and_put_back(run: Command, unique: str) -> None:
    name = "share.record.lock.duration.ms"
    assert run("group", "config", "set", unique, f"{name}=20000").out == f"{name}=20000\n"
    assert run("group", "config", "get", unique, name).rows[1] == [name, "20000", "this", "group"]
    assert run("group", "config", "set", unique, "--unset", name).out == f"{name}=30000 (its default)\n"
    assert [name, "30000", "default"] in run("group", "config", "get", unique).rows
    (entry,) = run("group", "config", "get", unique, name, "--json").json
    assert (entry["value"], entry["is_sensitive"]) == ("30000", False)


def test_a_wrong_setting_of_a_group_is_refused_by_name(run: Command, unique: str) -> None:
    said = run("group", "config", "set", unique, "share.auto.offset.rest=earliest", status=2).err
    assert "share.auto.offset.reset" in said
    assert "INVALID_CONFIG" in run.refused("group", "config", "set", unique, "share.auto.offset.reset=soon")


def test_describe_says_how_long_the_oldest_record_has_waited(run: Command, orders: str, unique: str) -> None:
    run("group", "config", "set", unique, "share.auto.offset.reset=earliest")
    run("consume", orders, "-g", unique, "--max", "1", "--release")
    said = run("group", "describe", unique).err
    assert f"The oldest record that group '{unique}' has not settled has waited " in said
    worked_off(run, orders, unique)
    assert "has waited" not in run("group", "describe", unique).err


def test_members_that_a_lag_needs_are_counted(
    run: Command, orders: str, unique: str, broker: BrokerUnderTest
) -> None:
    worked_off(run, orders, unique)
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send_many(orders, [b"x"] * 6)
    wanted = run("group", "scale", unique, "--drain", "2", "--rate", "1", "--json").json
    assert wanted == {
        "members": 0,
        "desired_members": 3,
        "lag": 6,
        "rate_per_member": 1.0,
        "reason": "6 records in 2 s at 1 records/s for each member",
    }
    measured = run("group", "scale", unique, "--measure", "0.1").out
    assert measured == "1 (0 now): 6 records wait, and there are no members: one, to measure its rate\n"
    worked_off(run, orders, unique, 6)
    assert run("group", "scale", unique, "--min", "2").out == "2 (0 now): no lag; min is 2\n"
    assert "got min=3 and max=2" in run("group", "scale", unique, "--min", "3", "--max", "2", status=2).err
    assert "there is no group" in run.refused("group", "scale", f"{unique}-none")
