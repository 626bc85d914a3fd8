"""Celery on Headrace's broker and on Apache Kafka."""

import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import celery
import kombu
import pytest
from celery import signals
from celery.contrib.testing.worker import start_worker
from celery.exceptions import Reject

import headrace.adapters.kombu
from tests.conformance.steps import wait_for

WAIT_S = 60
TASKS = 20


@pytest.fixture
def app(broker, unique):
    def leave_logging_alone(**_):
        pass

    assert headrace.adapters.kombu.Transport
    url = f"headrace://{broker.bootstrap_servers}/{unique}"
    app = celery.Celery("shop", broker=url, backend="rpc://", set_as_current=False)
    app.conf.update(broker_transport_options={"partitions": 2, "hold_max": 0}, worker_prefetch_multiplier=1)
    signals.setup_logging.connect(leave_logging_alone)
    yield app
    signals.setup_logging.disconnect(leave_logging_alone)
    app.backend.result_consumer.stop()
    app.pool.force_close_all()
    app.close()


def test_tasks_run_are_requeued_wait_and_are_controlled(app, broker, unique):
    seen: Counter[str] = Counter()
    gate = threading.Event()

    @app.task(shared=False)
    def add(first, second):
        seen["add"] += 1
        return first + second

    @app.task(shared=False, bind=True, acks_late=True)
    def again(task):
        seen["again"] += 1
        if not task.request.delivery_info["redelivered"]:
            raise Reject("not yet", requeue=True)
        return "at last"

    @app.task(shared=False, acks_late=True)
    def wait():
        seen["wait"] += 1
        gate.wait(WAIT_S)
        return "waited"

    sent = [add.delay(number, 1) for number in range(TASKS)]  # before there is a worker
    with start_worker(app, pool="threads", concurrency=4, perform_ping_check=False):
        assert [each.get(timeout=WAIT_S) for each in sent] == list(range(1, TASKS + 1))
        assert again.delay().get(timeout=WAIT_S) == "at last"
        due = datetime.now(UTC) + timedelta(seconds=1)
        assert add.apply_async((3, 4), eta=due).get(timeout=WAIT_S) == 7
        assert datetime.now(UTC) >= due
        assert [each.values() for each in app.control.ping(timeout=10, limit=1)]
        waiting = wait.delay()
        wait_for(lambda: seen["wait"], timeout_s=WAIT_S)
        broker.pass_time(1)
        gate.set()
        assert waiting.get(timeout=WAIT_S) == "waited"
        with kombu.Connection(app.conf.broker_url) as connection:
            channel = connection.default_channel
            wait_for(lambda: channel.queue_declare("celery", passive=True).message_count == 0)
    assert seen == {"add": TASKS + 1, "again": 2, "wait": 1}
