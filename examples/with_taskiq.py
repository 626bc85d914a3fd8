"""Taskiq with Headrace as its broker: coroutines, with a retry by Taskiq's own middleware.

The worker runs in this process, so that the program is whole. In production, it is the command `taskiq worker`.

    python examples/with_taskiq.py [-b HOST:PORT]
"""

import asyncio
import logging
import uuid

from support import account, broker_address
from taskiq import SimpleRetryMiddleware
from taskiq.api import run_receiver_task

from headrace.adapters.taskiq import HeadraceBroker

PAGES = 40
WAIT_S = 60.0


async def crawl(servers: str) -> list[str]:
    name = f"pages-{uuid.uuid4().hex[:8]}"
    broker = HeadraceBroker(servers, group_id=name, queue_name=name)
    broker.add_middlewares(SimpleRetryMiddleware(default_retry_count=3))
    fetched: list[str] = []
    tried: set[str] = set()
    is_done = asyncio.Event()

    @broker.task("fetch", retry_on_error=True)
    async def fetch(page: str) -> None:
        is_first, _ = page not in tried, tried.add(page)
        if is_first and page.endswith("0"):
            raise ConnectionError("the site is away")
        fetched.append(page)
        if len(fetched) > PAGES:
            is_done.set()

    await broker.startup()
    worker = asyncio.create_task(run_receiver_task(broker))
    try:
        await fetch.kicker().with_labels(delay=1).kiq("later")
        for number in range(PAGES):
            await fetch.kiq(f"page {number}")
        await asyncio.wait_for(is_done.wait(), WAIT_S)
    finally:
        worker.cancel()
        await asyncio.wait([worker])
        await broker.shutdown()
    return fetched


def main() -> None:
    logging.getLogger("taskiq").setLevel(logging.CRITICAL)  # failures are what this example is about
    with broker_address(__doc__) as servers:
        fetched = asyncio.run(crawl(servers))
        print(f"{len(fetched)} pages were fetched")
        wanted = [*(f"page {number}" for number in range(PAGES)), "later"]
        account(every_page_was_fetched_once=sorted(fetched) == sorted(wanted))


if __name__ == "__main__":
    main()
