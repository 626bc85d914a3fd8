"""`headrace produce` and `headrace consume` on both brokers: what goes in comes out, and is answered for."""

import json
from pathlib import Path

import pytest

from tests.conformance.cli.conftest import Command

PLACE = "%p@%o %D\\n"


def test_lines_of_a_file_come_out_with_key_headers_and_place(
    run: Command, unique: str, tmp_path: Path
) -> None:
    run("topic", "create", unique)
    file = tmp_path / "orders.txt"
    file.write_text("7: two coffees\n8: a cake\n")
    said = run("produce", unique, str(file), "--key-separator", ": ", "--header", "source=web", "-z", "lz4")
    assert said.err == f"Produced 2 records to {unique}.\n"
    arguments = ("consume", unique, "-g", unique, "--from-beginning", "--max", "2")
    taken = run(*arguments, "-f", r"%t %p %o %D %k|%s|%h|%K|%S\n")
    assert taken.out == (
        f"{unique} 0 0 1 7|two coffees|source=web|1|11\n{unique} 0 1 1 8|a cake|source=web|1|6\n"
    )
    assert taken.err.endswith("Processed a total of 2 messages\n")


def test_the_topic_is_made_on_request_and_a_whole_file_is_one_record(
    run: Command, unique: str, tmp_path: Path
) -> None:
    file = tmp_path / "order.bin"
    file.write_bytes(b"line\nline\xff\n")
    run("produce", unique, str(file), "--whole", "--create")
    taken = run("consume", unique, "-g", unique, "--from-beginning", "--max", "1", "--json")
    said = json.loads(taken.out)
    assert (said["value"], said["value_base64"]) == (None, "bGluZQpsaW5l/wo=")
    assert (said["topic"], said["delivery_count"]) == (unique, 1)


def test_what_is_accepted_does_not_come_again(run: Command, orders: str, unique: str) -> None:
    first = run("consume", orders, "-g", unique, "--from-beginning", "--max", "10", "-f", PLACE)
    assert sorted(first.out.split()[::2]) == sorted(f"{p}@{o}" for p in (0, 1) for o in range(5))
    assert run("consume", orders, "-g", unique, "--timeout", "1").out == ""
    lags = {row[4] for row in run("group", "describe", unique).rows[1:]}
    assert lags == {"0"}


def test_what_is_released_comes_again_with_its_deliveries_counted(run: Command, unique: str) -> None:
    run("topic", "create", unique)
    run("produce", unique, "--perf", "--count", "3", "--size", "5")
    arguments = ("consume", unique, "-g", unique, "--max", "3", "-f", PLACE)
    assert run(*arguments, "--from-beginning", "--release").out == "0@0 1\n0@1 1\n0@2 1\n"
    assert run(*arguments).out == "0@0 2\n0@1 2\n0@2 2\n"


def test_what_is_rejected_does_not_come_again(run: Command, orders: str, unique: str) -> None:
    rejected = run("consume", orders, "-g", unique, "--from-beginning", "--reject", "--max", "10", "-f", "")
    assert rejected.out == ""
    assert run("consume", orders, "-g", unique, "--timeout", "1").out == ""


def test_implicit_mode_accepts_what_was_printed(run: Command, orders: str, unique: str) -> None:
    taken = run(
        "consume", orders, "-g", unique, "--from-beginning", "--implicit", "--timeout", "1", "-f", PLACE
    )
    assert len(taken.out.splitlines()) == 10
    assert run("consume", orders, "-g", unique, "--timeout", "1").out == ""


def test_no_more_is_taken_than_asked_for(run: Command, orders: str, unique: str) -> None:
    taken = run("consume", orders, "-g", unique, "--from-beginning", "--max", "3", "-f", PLACE)
    assert len(taken.out.splitlines()) == 3
    rest = run("consume", orders, "-g", unique, "--timeout", "1", "-f", PLACE)
    assert [line.split()[1] for line in rest.out.splitlines()] == ["1"] * 7
    assert not {line.split()[0] for line in taken.out.splitlines()} & {
        line.split()[0] for line in rest.out.splitlines()
    }


def test_a_new_group_is_told_that_it_gets_only_what_comes(run: Command, orders: str, unique: str) -> None:
    quiet = run("consume", orders, "-g", unique, "--timeout", "0.5")
    assert quiet.out == ""
    assert f"Group '{unique}' is new and gets what is produced from now on" in quiet.err


def test_from_the_beginning_is_a_setting_of_the_group_and_is_told(
    run: Command, orders: str, unique: str
) -> None:
    said = run("consume", orders, "-g", unique, "--from-beginning", "--max", "1").err
    assert f"Set share.auto.offset.reset=earliest for group '{unique}'." in said
    again = run("consume", orders, "-g", unique, "--from-beginning", "--max", "1").err
    assert f"`headrace group reset {unique} --to-earliest --execute` starts over" in again


def test_a_consumer_group_goes_on_where_it_stopped(run: Command, orders: str, unique: str) -> None:
    arguments = ("consume", orders, "-g", unique, "--consumer-group", "-f", "%p@%o\\n")
    first = run(*arguments, "--from-beginning", "--max", "4").out.split()
    rest = run(*arguments, "--timeout", "2").out.split()
    assert sorted(first + rest) == sorted(f"{p}@{o}" for p in (0, 1) for o in range(5))
    assert len(first) == 4


def test_a_group_of_the_other_type_is_refused_with_the_way_to_join_it(
    run: Command, orders: str, unique: str
) -> None:
    run("consume", orders, "-g", unique, "--from-beginning", "--max", "1")
    said = run.refused("consume", orders, "-g", unique, "--consumer-group")
    assert f"'{unique}' is a share group; leave out --consumer-group to join it" in said
    other = f"{unique}-c"
    run("consume", orders, "-g", other, "--consumer-group", "--from-beginning", "--max", "1")
    assert "use --consumer-group to join it" in run.refused("consume", orders, "-g", other)


def test_perf_prints_the_columns_of_kafka_s_tools(run: Command, unique: str) -> None:
    run("topic", "create", unique)
    line = run("produce", unique, "--perf", "--count", "200", "--size", "20").out
    assert line.startswith("200 records sent, ")
    assert "ms 99.9th." in line
    figures = run("consume", unique, "-g", unique, "--from-beginning", "--max", "200", "--perf").out
    header, values = figures.splitlines()
    assert header == (
        "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms"
    )
    assert values.split(", ")[5] == "200"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("-f", "%z"), "%z is not a valid format specifier"),
        (("--accept", "--reject"), "choose one of --accept, --release and --reject"),
        (("--implicit", "--release"), "--implicit accepts everything"),
        (("--consumer-group", "--reject"), "are for share groups"),
        (("--json", "-v"), "choose one of --format, --verbose and --json"),
    ],
)
def test_a_wrong_command_line_is_told_before_anything_is_taken(
    run: Command, orders: str, unique: str, arguments: tuple[str, ...], told: str
) -> None:
    said = " ".join(run("consume", orders, "-g", unique, *arguments, status=2).err.replace("│", " ").split())
    assert told in said


def test_a_record_that_is_too_large_is_told_with_the_cure(run: Command, unique: str, tmp_path: Path) -> None:
    run("topic", "create", unique, "-c", "max.message.bytes=1000")
    file = tmp_path / "large"
    file.write_bytes(b"x" * 5000)
    said = run("produce", unique, str(file), "--whole", status=1).err
    assert f"1 record of 1 for topic '{unique}' not acknowledged" in said
    assert "raise the topic's max.message.bytes" in said


def test_a_partition_that_is_not_there_is_named(run: Command, orders: str) -> None:
    assert "has no partition 7, only 0 to 1" in run.refused("produce", orders, "--perf", "--partition", "7")
