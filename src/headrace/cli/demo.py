"""`headrace demo`: a broker, a thousand orders through it, a restart in the middle, and the account at the end.

It uses aiokafka, an ordinary Kafka client that knows nothing of us. The share-group story takes this place when
our own share client is there.
"""

import asyncio
import json
import tempfile
import time
from pathlib import Path

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from headrace.broker.embedded import Broker

ORDERS = 1000
TOPIC, GROUP = "orders", "billing"
WAIT_S_MAX = 30.0


def run() -> int:
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
        return asyncio.run(_story(Path(folder) / "data"))


async def _story(data_dir: Path) -> int:
    started = time.perf_counter()
    with Broker(data_dir=data_dir) as broker:
        _say(
            f"a broker listens on {broker.bootstrap_servers} after {(time.perf_counter() - started) * 1000:.0f} ms,"
        )
        _say("  every record on disk before it is acknowledged")
        await _create_topic(broker.bootstrap_servers)
        _say(f"topic {TOPIC!r} created with 2 partitions")
        sent = await _produce(broker.bootstrap_servers)
        _say(f"{len(sent)} orders produced (idempotent producer, acks=all)")
        first = await _consume(broker.bootstrap_servers, ORDERS // 2)
        _say(f"consumer group {GROUP!r} took {len(first)} of them and committed its offsets")
    _say("the broker was stopped; now it starts again on the same data directory")
    with Broker(data_dir=data_dir) as broker:
        rest = await _consume(broker.bootstrap_servers, ORDERS - len(first))
        _say(f"the group went on where it had stopped and took the other {len(rest)}")
    return _account(sent, first + rest)


def _account(sent: list[int], taken: list[int]) -> int:
    lost = len(set(sent) - set(taken))
    twice = len(taken) - len(set(taken))
    _say(f"account: {len(sent)} produced, {len(taken)} consumed, {lost} lost, {twice} twice")
    if lost or twice or sorted(taken) != sorted(sent):
        _say("the account does not hold: this is a fault in Headrace, please report it")
        return 1
    return 0


def _say(text: str) -> None:
    print(text, flush=True)


async def _create_topic(servers: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(TOPIC, num_partitions=2, replication_factor=1)])
    finally:
        await admin.close()


async def _produce(servers: str) -> list[int]:
    producer = AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True, linger_ms=5)
    await producer.start()
    try:
        orders = range(ORDERS)
        waiting = [
            await producer.send(TOPIC, json.dumps({"order": order}).encode(), partition=order % 2)
            for order in orders
        ]
        await asyncio.gather(*waiting)
        return list(orders)
    finally:
        await producer.stop()


async def _consume(servers: str, count: int) -> list[int]:
    """Takes exactly `count` orders as a member of the group, and commits how far it came."""
    consumer = AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=servers,
        group_id=GROUP,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    taken: list[int] = []
    deadline = time.monotonic() + WAIT_S_MAX
    try:
        while len(taken) < count and time.monotonic() < deadline:
            batches = await consumer.getmany(timeout_ms=500, max_records=count - len(taken))
            taken += [json.loads(record.value)["order"] for records in batches.values() for record in records]
        await consumer.commit()
    finally:
        await consumer.stop()
    return taken
