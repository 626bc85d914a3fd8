"""Django's tasks on Headrace's broker and on Apache Kafka: run, tried again, deferred, given up."""

from datetime import timedelta

from tests import django_jobs

# isort: split
from django.test import override_settings
from django.utils import timezone

from headrace.worker import Backoff
from tests.conformance.worker.test_worker import read
from tests.django_jobs import DO, SEEN, tasks
from tests.django_project import tasks_setting


def fail():
    raise RuntimeError("no")


def test_tasks_run_are_deferred_and_given_up(work, broker, admin, unique):
    for topic in (f"{unique}.default", f"{unique}.default.dead"):
        admin.create_topic(topic, partitions=1)
    SEEN.clear()
    DO[:] = [fail, lambda: None, fail]
    retries = Backoff(first=0.05, most=0.05, tries=3)
    options = {"group_id": unique, "retries": retries, "concurrency": 1}
    setting = tasks_setting(broker.bootstrap_servers, queues=["default"], **options)
    with override_settings(TASKS=setting), tasks.default_task_backend.queue as queue:
        django_jobs.obey.enqueue()
        worker = work(queue)
        worker.wait_for(succeeded=1)
        django_jobs.note.using(run_after=timezone.now() + timedelta(seconds=1)).enqueue("later")
        worker.wait_for(succeeded=2)
        django_jobs.obey.enqueue()
        worker.wait_for(dead_lettered=1)
        worker.stop()
    assert SEEN == [1, 2, (["later"], {}), 1, 2, 3]
    (headers,) = read(broker.bootstrap_servers, f"{unique}.default.dead", 1)
    assert headers["django.task"] == "tests.django_jobs.obey"
