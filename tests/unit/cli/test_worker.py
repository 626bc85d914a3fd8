"""`headrace worker MODULE:QUEUE`: what is wrong with the name is said by name."""

import sys

import pytest
from typer.testing import CliRunner

from headrace.cli.app import app
from headrace.cli.worker import find_queue
from headrace.worker import QueueError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("mail_"):
            del sys.modules[name]


QUEUE = "from headrace.worker import Queue\n\nclass Box:\n    inner = Queue('localhost:1', group_id='b')\n\n"
QUEUE += "queue = Queue('localhost:1', group_id='g')\nnumber = 7\n"


def test_a_queue_is_found_in_the_working_directory(folder):
    (folder / "mail_good.py").write_text(QUEUE)

    assert find_queue("mail_good:queue").group_id == "g"
    assert find_queue("mail_good:Box.inner").group_id == "b"


@pytest.mark.parametrize("place", ["", "mail", ":queue", "mail:"])
def test_a_name_without_its_two_parts_is_refused(place):
    with pytest.raises(QueueError, match="is not MODULE:QUEUE"):
        find_queue(place)


def test_a_module_that_is_not_there_is_named(folder):
    with pytest.raises(QueueError, match="there is no module 'mail_none'"):
        find_queue("mail_none:queue")


def test_a_module_that_lacks_another_one_says_which(folder):
    (folder / "mail_lacks.py").write_text("import no_such_module_anywhere\n")

    with pytest.raises(QueueError, match="cannot be imported: No module named 'no_such_module_anywhere'"):
        find_queue("mail_lacks:queue")


def test_a_module_that_breaks_says_how(folder):
    (folder / "mail_broken.py").write_text("1 / 0\n")

    with pytest.raises(QueueError, match="cannot be imported: ZeroDivisionError"):
        find_queue("mail_broken:queue")


def test_a_queue_that_is_not_there_is_named_beside_those_that_are(folder):
    (folder / "mail_other.py").write_text(QUEUE)

    with pytest.raises(QueueError, match="has no 'queues'; its queues: queue"):
        find_queue("mail_other:queues")


def test_something_that_is_no_queue_is_named_as_what_it_is(folder):
    (folder / "mail_number.py").write_text(QUEUE)

    with pytest.raises(QueueError, match="is a int, not a Queue"):
        find_queue("mail_number:number")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nothing"], "is not MODULE:QUEUE"),
        (["mail_command:queue", "-X", "nonsense"], "-X 'nonsense' is not KEY=VALUE"),
        (["mail_command:queue", "-X", "securty.protocol=SSL"], "securty.protocol"),
        (["mail_command:queue"], "has no tasks"),
        (["mail_command:queue", "--command-config", "none.properties"], "none.properties"),
    ],
)
def test_the_command_fails_with_one_line_that_says_why(folder, arguments, says):
    (folder / "mail_command.py").write_text(QUEUE)

    ran = CliRunner().invoke(app, ["worker", *arguments])

    assert ran.exit_code == 1
    assert ran.stderr.startswith("headrace worker: ")
    assert says in ran.stderr
