"""Celery with Headrace as its broker: orders whose payments fail now and then, with results over rpc://.

The worker runs in this process, so that the program is whole. In production, it is the command `celery worker`.

    python examples/with_celery.py [-b HOST:PORT]
"""

import logging
import threading
import uuid

from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.signals import setup_logging
from support import account, broker_address

import headrace.adapters.kombu  # registers headrace://

ORDERS = 40
WAIT_S = 60

app = Celery("shop", backend="rpc://")
app.conf.update(task_acks_late=True, broker_connection_retry_on_startup=True)
paid: list[int] = []
tried: set[int] = set()
lock = threading.Lock()


@app.task(bind=True, default_retry_delay=0.1)
def pay(self, order: int) -> str:
    with lock:
        is_first, _ = order not in tried, tried.add(order)
    if is_first and order % 5 == 0:
        raise self.retry(exc=ConnectionError("the bank is away"))
    with lock:
        paid.append(order)
    return f"order {order} is paid"


def main() -> None:
    setup_logging.connect(lambda **_: logging.getLogger("celery").setLevel(logging.CRITICAL), weak=False)
    assert headrace.adapters.kombu.Transport
    with broker_address(__doc__) as servers:
        app.conf.broker_url = f"headrace://{servers}/shop-{uuid.uuid4().hex[:8]}"
        with start_worker(app, pool="threads", concurrency=4, perform_ping_check=False, loglevel="CRITICAL"):
            results = [pay.delay(order) for order in range(ORDERS)]
            later = pay.apply_async((ORDERS,), countdown=1)
            answers = [result.get(timeout=WAIT_S) for result in [*results, later]]
        print(f"{len(answers)} results, the last one: {answers[-1]}")
        account(
            every_order_was_paid_once=sorted(paid) == list(range(ORDERS + 1)),
            every_result_came_back=answers == [f"order {order} is paid" for order in range(ORDERS + 1)],
        )


if __name__ == "__main__":
    main()
