"""`headrace schedule`: what a queue sends later, listed and canceled."""

import json
import re
import time

import pytest
from typer.testing import CliRunner

from headrace import Broker
from headrace.cli.app import app
from headrace.worker import Queue
from headrace.worker.later import new_id


@pytest.fixture
def servers():
    with Broker() as broker:
        yield broker.bootstrap_servers


def run(*arguments: str):
    return CliRunner().invoke(app, ["schedule", *arguments])


def test_scheduled_records_are_listed_and_canceled(servers):
    with Queue(servers, group_id="mailers") as queue:
        first = queue.schedule("emails", "ada", delay=7200, key="k")
        second = queue.schedule("emails", "bob", delay=3600)
    listed = run("list", "mailers", "-b", servers)
    assert listed.exit_code == 0
    assert listed.output.index(second.id) < listed.output.index(first.id)
    (row,) = json.loads(run("list", "mailers", "--max", "1", "--json", "-b", servers).output)
    assert (row["id"], row["topic"], row["value"], row["key"]) == (second.id, "emails", "bob", None)

    assert "1 of 1 canceled" in run("cancel", "mailers", second.id, "-b", servers).output
    assert [row["id"] for row in json.loads(run("list", "mailers", "--json", "-b", servers).output)] == [
        first.id
    ]


def test_a_group_without_any_and_an_id_that_is_none(servers):
    assert "group mailers has no scheduled records" in run("list", "mailers", "-b", servers).output
    wrong = run("cancel", "mailers", "nonsense", "-b", servers)
    assert wrong.exit_code == 1
    assert "is not the ID of a scheduled record" in wrong.output


def test_each_id_that_is_not_scheduled_or_is_due_is_told(servers):
    with Queue(servers, group_id="mailers") as queue:
        waits, due = (queue.schedule("emails", "ada", delay=delay).id for delay in (3600, 0))
    never = new_id(time.time_ns() // 1_000_000 + 3_600_000)
    told = run("cancel", "mailers", waits, due, never, "-b", servers)
    assert told.exit_code == 1
    assert "1 of 3 canceled" in told.output
    assert f"already due, may have been sent: {due}" in told.output
    assert re.search(rf"not scheduled in group mailers \(.*\): {never}$", told.output, re.MULTILINE)


def test_with_an_id_that_is_none_nothing_is_canceled(servers):
    with Queue(servers, group_id="mailers") as queue:
        first = queue.schedule("emails", "ada", delay=3600)
        assert run("cancel", "mailers", first.id, "nonsense", "-b", servers).exit_code == 1
        assert [each.id for each in queue.scheduled()] == [first.id]
