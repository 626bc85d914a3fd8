"""`headrace consume` that is told to stop while it prints: what it has printed is answered for."""

import os
import signal
from collections.abc import Iterable

from headrace import Admin, Broker
from headrace.cli.consume import Output
from headrace.cli.consume_shared import run
from headrace.cli.formats import Shown
from headrace.client.sync import ShareConsumer
from headrace.worker import Queue


class StoppedWhilePrinting(Output):
    def emit(self, records: Iterable[Shown]) -> None:
        super().emit(records)
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_while_records_are_printed_ends_it_in_order_and_they_do_not_come_again() -> None:
    out = StoppedWhilePrinting(lambda record: b"", perf=False, maximum=None)
    with Broker() as broker:
        settings = {"bootstrap.servers": broker.bootstrap_servers}
        with Admin(settings) as admin:
            admin.create_topic("t")
            admin.set_group_config("g", {"share.auto.offset.reset": "earliest"})
        with Queue(broker.bootstrap_servers, group_id="g") as queue:
            queue.send("t", b"one")
        run(settings, ["t"], "g", out, None, "accept")
        assert out.records == 1
        with ShareConsumer(settings, group_id="g") as other:
            other.subscribe(["t"])
            assert other.poll(0.5) == []
