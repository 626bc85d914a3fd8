"""Our share consumer on our broker. The server's address ends with the mode and the topic: HOST:PORT/MODE/TOPIC."""

import os

from bench.clients.figures import Figures, Stopwatch
from bench.queues.jobs.work import SERVER
from bench.queues.messages import common
from bench.wire import Connection, create_topic, set_group_config
from headrace import Producer, ShareConsumer
from headrace.client.admin import Admin

server, mode, topic = os.environ[SERVER].rsplit("/", 2)
PARTITIONS = 1
NOTHING_TO_DO = f"{topic}-empty"
"""Consumers subscribe to it first: this connects them, as the peers' are when they wait for the word to begin."""
CONNECT_S = 1.0
BATCH_BYTES = common.AT_ONCE * 110
"""Of a record batch, which goes to one consumer whole: a record here has 110 bytes."""


def send(messages: int) -> Figures:
    with Connection(server) as connection:
        create_topic(connection, topic, partitions=PARTITIONS)
        create_topic(connection, NOTHING_TO_DO, partitions=PARTITIONS)
        set_group_config(connection, topic, "share.auto.offset.reset", "earliest")
        in_flight = str(common.AT_ONCE * common.CONSUMERS_MAX)
        set_group_config(connection, topic, "share.partition.max.record.locks", in_flight)
    with Producer(bootstrap_servers=server, batch_size=BATCH_BYTES) as producer:
        watch = Stopwatch()
        sent = producer.send_many(topic, (body for batch in common.batches(messages) for body in batch))
        return watch.figures(len(sent))


def consume(shift: common.Shift) -> None:
    settings = {
        "bootstrap.servers": server,
        "group.id": topic,
        "share.acknowledgement.mode": mode,
        "max.poll.records": common.AT_ONCE,
    }
    with ShareConsumer(settings) as consumer:
        consumer.subscribe([NOTHING_TO_DO])
        consumer.poll(CONNECT_S)
        shift.begin()
        consumer.subscribe([topic])
        while not shift.is_over:
            deliveries = consumer.poll(common.IDLE_S)
            if mode == "explicit":
                for delivery in deliveries:
                    consumer.acknowledge(delivery)
            if deliveries:
                shift.note(delivery.value or b"" for delivery in deliveries)
        consumer.commit_sync()


def left() -> int:
    with Admin(bootstrap_servers=server) as admin:
        return sum(offset.lag or 0 for offset in admin.share_group_offsets(topic).values())


if __name__ == "__main__":
    common.main(send, consume, left)
