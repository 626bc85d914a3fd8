"""`headrace dlq` on both brokers: letters as a worker writes them, by cause, one by one, and back to their topic."""

import json
from pathlib import Path

import pytest

from tests.conformance.cli.conftest import Command


@pytest.fixture
def box(run: Command, unique: str, tmp_path: Path) -> tuple[str, str]:
    """A topic, and its dead letters: three of one cause, one of another."""
    topic, dead = f"t-{unique}", f"dlq.{unique}"
    run("topic", "create", topic, dead)
    for number, cause in enumerate(["boom", "boom", "boom", "late"]):
        file = tmp_path / f"{number}"
        file.write_text(f"order {number}")
        headers = {
            "__dlq.errors.topic": topic,
            "__dlq.errors.partition": "0",
            "__dlq.errors.offset": str(number),
            "__dlq.errors.group": unique,
            "__dlq.errors.delivery.count": "3",
            "__dlq.errors.message": f"it went {cause}",
        }
        given = [argument for name, value in headers.items() for argument in ("-H", f"{name}={value}")]
        run("produce", dead, str(file), "--whole", *given)
    return topic, dead


def test_letters_are_listed_by_cause(run: Command, box: tuple[str, str], unique: str) -> None:
    _, dead = box
    said = run("dlq", "list", dead)
    assert said.out.splitlines()[0] == f"{dead}: 4 dead letters of 2 causes"
    assert said.rows[1][:6] == ["CAUSE", "LETTERS", "WAITING", "CLAIMED", "REDRIVEN", "DISCARDED"]
    assert said.rows[2][1:7] == ["3", "3", "0", "0", "0", unique]
    assert said.out.splitlines()[2].endswith("it went boom")
    letters = run("dlq", "list", dead, "--letters").rows[2:]
    assert {row[0] for row in letters} == {"0@0", "0@1", "0@2", "0@3"}
    assert dead in run("dlq", "list").out


def test_a_letter_is_shown_with_headers_and_body(run: Command, box: tuple[str, str], unique: str) -> None:
    topic, dead = box
    shown = run("dlq", "show", dead, "0@3").out
    assert f"came from:  {topic} 0@3" in shown
    assert "cause:" in shown
    assert f"  __dlq.errors.group = {unique}" in shown
    assert shown.endswith("value:\norder 3\n")
    assert json.loads(run("dlq", "show", dead, "--json").out)["value"] == "order 3"
    assert "there is no dead letter 0@9" in run.refused("dlq", "show", dead, "0@9")


def test_letters_go_back_once_by_cause_and_number(run: Command, box: tuple[str, str]) -> None:
    topic, dead = box
    plan = run("dlq", "redrive", dead)
    assert plan.out == f"4 dead letters of {dead} would go back: 4 to {topic}\n"
    assert "Dry run" in plan.err
    cause = run("dlq", "list", dead).rows[2][0]
    went = run("dlq", "redrive", dead, "--cause", cause, "--max", "2", "--execute")
    assert went.out == f"2 dead letters of {dead} went back: 2 to {topic}\n"
    assert run("dlq", "redrive", dead, "--execute", "--json").json["redriven"] == 2
    assert run("dlq", "redrive", dead, "--execute").out == f"0 dead letters of {dead} went back\n"
    back = run(
        "consume", topic, "-g", topic, "--from-beginning", "--max", "4", "-f", "%s|%h\\n"
    ).out.splitlines()
    assert sorted(line.split("|")[0] for line in back) == ["order 0", "order 1", "order 2", "order 3"]
    assert all("headrace.redrive.from=" in line and "__dlq" not in line for line in back)


def test_an_unknown_cause_or_name_is_refused(run: Command, box: tuple[str, str]) -> None:
    assert "has the cause 'nothing'" in run.refused("dlq", "redrive", box[1], "--cause", "nothing")
    said = run.refused("dlq", "list", "nobody-at-all")
    assert (
        "'nobody-at-all' is neither a topic nor a group whose errors.deadletterqueue.topic.name is set"
        in said
    )
    assert box[1] in said


def test_a_letter_is_discarded(run: Command, box: tuple[str, str]) -> None:
    _, dead = box
    assert "1 dead letter of" in run("dlq", "discard", dead, "--letter", "0@1").out
    assert (
        run("dlq", "discard", dead, "--letter", "0@1", "--execute").out
        == f"1 dead letter of {dead} discarded\n"
    )
    statuses = {row[0]: row[1] for row in run("dlq", "list", dead, "--letters").rows[2:]}
    assert (statuses["0@1"], statuses["0@0"]) == ("discarded", "waiting")
    assert "no dead letter 0@99" in run.refused("dlq", "redrive", dead, "--letter", "0@99")
