"""Fraud checks: each payment waits for two slow services, many at a time on one event loop, with poison in between.

Records that are no payments at all, and payments on which the check itself breaks, must not stop the others: they end
in the dead-letter topic with the cause in their headers, and are read from there at the end.

    python examples/fraud.py [-b HOST:PORT]
"""

import asyncio
import logging
import time
import uuid
from collections import Counter

import msgspec
from aiokafka import AIOKafkaConsumer
from support import account, broker_address

from headrace.client.delivery import Delivery
from headrace.worker import Backoff, Queue

PAYMENTS, GARBAGE, BREAKING = 500, 7, 5
SERVICE_S = 0.02


class Payment(msgspec.Struct):
    account: str
    cents: int


run_id = uuid.uuid4().hex[:8]
topic, dead_topic = f"payments-{run_id}", f"payments-{run_id}.dead"
queue = Queue("localhost:9092", group_id=f"fraud-{run_id}", content_type="msgpack")
verdicts: Counter[str] = Counter()
checked: set[tuple[int, int]] = set()


@queue.task(topic, concurrency=100, retries=Backoff(first=0.05, most=0.2, tries=3), dead_letter=dead_topic)
async def check(payment: Payment, delivery: Delivery) -> None:
    history, rating = await asyncio.gather(ask_history(payment), ask_rating(payment))
    verdicts["flagged" if history + rating > 1.5 else "approved"] += 1
    checked.add((delivery.partition, delivery.offset))


async def ask_history(payment: Payment) -> float:
    await asyncio.sleep(SERVICE_S)
    return 1.0 / payment.cents  # breaks on the payments of nothing


async def ask_rating(payment: Payment) -> float:
    await asyncio.sleep(SERVICE_S)
    return 1.0 if payment.account.startswith("shady") else 0.0


async def work(servers: str) -> list[dict[str, str]]:
    good = PAYMENTS - BREAKING
    bodies: list[object] = [
        Payment("shady", 1) if n % 50 == 0 else Payment("solid", 990) for n in range(good)
    ]
    bodies += [Payment("empty", 0)] * BREAKING
    bodies += [b"\xc1 this is no msgpack"] * GARBAGE
    await asyncio.gather(*(queue.send_async(topic, body, key=str(n)) for n, body in enumerate(bodies)))
    print(f"sent {PAYMENTS} payments, {BREAKING} of which break the check, and {GARBAGE} records of garbage")
    began = time.perf_counter()
    worker = asyncio.create_task(queue.run_async())
    while not worker.done() and verdicts.total() + dead_letters() < len(bodies):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    print(f"checked {verdicts.total()} payments in {time.perf_counter() - began:.2f} s; one after another: "
          f"{verdicts.total() * SERVICE_S:.0f} s")  # fmt: skip
    queue.stop()
    await worker
    return await read_dead_letters(servers)


def dead_letters() -> int:
    return sum(metrics.dead_lettered for metrics in queue.metrics().values())


async def read_dead_letters(servers: str) -> list[dict[str, str]]:
    """With any Kafka client: the dead-letter topic is a topic like others."""
    consumer = AIOKafkaConsumer(dead_topic, bootstrap_servers=servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        found: list[dict[str, str]] = []
        ends = await consumer.end_offsets(consumer.assignment())
        while len(found) < sum(ends.values()):
            record = await asyncio.wait_for(consumer.getone(), 10)
            found.append({name: value.decode() for name, value in record.headers})
        return found
    finally:
        await consumer.stop()


def main() -> None:
    logging.getLogger("headrace.worker").setLevel(
        logging.CRITICAL
    )  # what is given up is read from its topic below
    with broker_address(__doc__) as servers, queue:
        queue.configure(bootstrap_servers=servers)
        dead = asyncio.run(work(servers))
        causes = Counter(
            (letter["headrace.dlq.cause"], letter["headrace.dlq.exception"].partition(":")[0])
            for letter in dead
        )
        print(", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())))
        for (cause, exception), count in causes.most_common():
            print(f"{count} dead letters: {cause}, {exception}")
        account(
            every_good_payment_was_checked_once=verdicts.total() == len(checked) == PAYMENTS - BREAKING,
            each_poison_record_is_one_dead_letter=len(dead) == BREAKING + GARBAGE,
            garbage_is_unreadable=sum(n for (cause, _), n in causes.items() if cause == "unreadable")
            == GARBAGE,
            broken_checks_are_exhausted=causes[("exhausted", "ZeroDivisionError")] == BREAKING,
            shady_ones_were_flagged=verdicts["flagged"] == len(range(0, PAYMENTS - BREAKING, 50)),
        )


if __name__ == "__main__":
    main()
