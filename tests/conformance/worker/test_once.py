"""Tasks with `once=` on both brokers: what was committed is not run again, and what is stored is sent."""

import contextlib

import pytest

from headrace.worker import TaskRun
from tests.databases import KINDS, Site


@pytest.fixture
def site(tmp_path):
    site = Site(KINDS["sqlite"], str(tmp_path / "app.db"))
    yield site
    site.close()


def test_a_record_that_was_committed_and_not_accepted_is_only_accepted(queue, work, admin, unique, site):
    task = site.declare(queue, unique)
    topic_id = admin.describe_topics([unique])[unique].topic_id
    for number in range(10):
        sent = queue.send(unique, str(number))
        run = TaskRun(
            task=task.name, group_id=unique, topic=unique, topic_id=topic_id, partition=sent.partition,
            offset=sent.offset, key=None, headers=(), delivery_count=1, attempt=1,
        )  # fmt: skip
        task.invoke(run, str(number))  # as by a worker that died right after its commit
    worker = work(queue)
    worker.wait_for(duplicates=10, succeeded=10)
    worker.stop()
    assert site.effects() == [str(number) for number in range(10)]


def test_what_is_stored_with_a_transaction_is_run_once(queue, work, unique, site):
    site.declare(queue, unique)
    worker = work(queue)
    for number in range(10):
        with contextlib.closing(site.connect()) as connection:
            queue.send(unique, str(number), transaction=connection)
            if number % 2:
                connection.commit()
    worker.wait_for(succeeded=5)
    worker.stop()
    assert site.effects() == ["1", "3", "5", "7", "9"]
