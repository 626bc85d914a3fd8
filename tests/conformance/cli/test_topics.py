"""`headrace topic` on both brokers: what it makes, shows, changes and deletes, and what it refuses."""

from tests.conformance.cli.conftest import Command


def test_a_topic_is_made_shown_changed_and_deleted(run: Command, unique: str) -> None:
    assert run("topic", "create", unique, "-p", "2", "-c", "retention.ms=1000000").out == (
        f"Created topic {unique} with 2 partitions.\n"
    )
    assert [unique, "2", "1", "0", "0", "B"] in run("topic", "list").rows
    run(
        "topic",
        "alter",
        unique,
        "--partitions",
        "3",
        "-c",
        "cleanup.policy=compact",
        "--unset",
        "retention.ms",
    )
    (described,) = run("topic", "describe", unique, "--json").json
    assert [one["partition"] for one in described["topic"]["partitions"]] == [0, 1, 2]
    assert [(one["name"], one["value"]) for one in described["configs"]] == [("cleanup.policy", "compact")]
    said = run.refused("topic", "delete", unique)
    assert f"this would delete topic {unique} with 0 records, which cannot be undone. Use --yes" in said
    assert unique in run("topic", "list").out
    assert run("topic", "delete", unique, "--yes").out == f"Deleted {unique}.\n"
    assert unique not in run("topic", "list").out


def test_describe_counts_records_and_shows_offsets(run: Command, orders: str) -> None:
    said = run("topic", "describe", orders)
    assert f"Topic {orders}: 2 partitions, 10 records, replication factor 1" in said.out
    assert said.rows[-3:] == [
        ["PARTITION", "LEADER", "REPLICAS", "ISR", "START-OFFSET", "END-OFFSET"],
        ["0", "1", "1", "1", "0", "5"],
        ["1", "1", "1", "1", "0", "5"],
    ]


def test_the_list_has_records_and_sizes(run: Command, orders: str) -> None:
    (row,) = (row for row in run("topic", "list").rows if row[0] == orders)
    assert row[3] == "10"
    (listed,) = (one for one in run("topic", "list", "--json").json if one["name"] == orders)
    assert listed["records"] == 10
    assert listed["bytes"] > 100


def test_a_topic_that_exists_is_refused_unless_that_will_do(run: Command, orders: str) -> None:
    assert "exists already; use --if-not-exists" in run.refused("topic", "create", orders)
    assert run("topic", "create", orders, "--if-not-exists").out == f"Topic {orders} exists already.\n"


def test_an_unknown_topic_is_refused_with_the_nearest_name(run: Command, orders: str) -> None:
    for command in (("topic", "describe"), ("topic", "delete"), ("consume",), ("produce",)):
        said = run.refused(*command, orders[:-1])
        assert f"there is no topic '{orders[:-1]}'; did you mean '{orders}'?" in said


def test_what_the_broker_refuses_is_told_with_the_cure(run: Command, orders: str) -> None:
    assert "letters, digits, dots, underscores and dashes" in run.refused("topic", "create", "no good")
    assert "a topic can only gain partitions" in run.refused("topic", "alter", orders, "--partitions", "1")
    assert "INVALID_CONFIG" in run.refused("topic", "alter", orders, "-c", "retention.ms=soon")


def test_nothing_to_change_is_a_wrong_command_line(run: Command, orders: str) -> None:
    assert "nothing to change" in run("topic", "alter", orders, status=2).err
