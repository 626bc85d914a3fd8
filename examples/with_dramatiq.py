"""Dramatiq with Headrace as its broker: thumbnails, some of which fail once and are retried.

The worker runs in this process, so that the program is whole. In production, it is the command `dramatiq`.

    python examples/with_dramatiq.py [-b HOST:PORT]
"""

import logging
import threading
import uuid

import dramatiq
from dramatiq.middleware import Retries
from support import account, broker_address

from headrace.adapters.dramatiq import HeadraceBroker

PICTURES = 40
WAIT_MS = 60_000

made: list[str] = []
tried: set[str] = set()
lock = threading.Lock()


def scale(picture: str) -> None:
    with lock:
        is_first, _ = picture not in tried, tried.add(picture)
    if is_first and picture.endswith("0.png"):
        raise OSError("the disk is away")
    with lock:
        made.append(picture)


def main() -> None:
    logging.getLogger("dramatiq").setLevel(logging.CRITICAL)  # failures are what this example is about
    with broker_address(__doc__) as servers:
        group = f"thumbnails-{uuid.uuid4().hex[:8]}"
        retries = Retries(min_backoff=100, max_backoff=100)
        broker = HeadraceBroker(servers, group_id=group, middleware=[retries])
        dramatiq.set_broker(broker)
        thumbnail = dramatiq.actor(scale, actor_name="thumbnail")
        worker = dramatiq.Worker(broker, worker_threads=4, worker_timeout=100)
        worker.start()
        try:
            for number in range(PICTURES):
                thumbnail.send(f"{number}.png")
            thumbnail.send_with_options(args=("later.png",), delay=1_000)
            broker.join(thumbnail.queue_name, timeout=WAIT_MS)
        finally:
            worker.stop()
            broker.close()
        print(f"{len(made)} thumbnails, the last one of {made[-1]}")
        wanted = [*(f"{number}.png" for number in range(PICTURES)), "later.png"]
        account(every_picture_has_one_thumbnail=sorted(made) == sorted(wanted))


if __name__ == "__main__":
    main()
