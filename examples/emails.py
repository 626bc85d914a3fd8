"""An e-mail queue with a mail server that is away at first, then busy now and then.

Each failure is tried again after a back-off that grows. The record's lock is renewed meanwhile, so no delivery is spent
on it. An address that can never work is rejected, and ends in the dead-letter topic.

    python examples/emails.py [-b HOST:PORT]
"""

import asyncio
import logging
import random
import time
import uuid
from dataclasses import dataclass

from support import account, broker_address

from headrace.worker import Backoff, Queue, Reject

EMAILS, IMPOSSIBLE = 200, 5
AWAY_S = 1.0


@dataclass
class Email:
    to: str
    subject: str


class Busy(Exception):
    """The mail server's "try again later"."""


class MailServer:
    """Away for a second after the first call, then busy for every fifth mail."""

    def __init__(self) -> None:
        self.delivered: list[str] = []
        self.calls = 0
        self._opens: float | None = None
        self._chance = random.Random(42)

    async def deliver(self, email: Email) -> None:
        self.calls += 1
        self._opens = self._opens or time.monotonic() + AWAY_S
        await asyncio.sleep(0.01)
        if time.monotonic() < self._opens:
            raise ConnectionRefusedError("the mail server is away")
        if self._chance.random() < 0.2:
            raise Busy("421 too many connections")
        self.delivered.append(email.to)


run_id = uuid.uuid4().hex[:8]
queue = Queue("localhost:9092", group_id=f"mailers-{run_id}")
server = MailServer()


@queue.task(
    f"emails-{run_id}",
    concurrency=50,
    waiting=EMAILS,
    retries=Backoff(first=0.2, factor=2.0, most=2.0, tries=20),
    dead_letter=f"emails-{run_id}.dead",
)
async def send(email: Email) -> None:
    if "@" not in email.to:
        raise Reject(f"{email.to!r} is no address")
    await server.deliver(email)


async def work() -> None:
    emails = [Email(f"user{number}@example.org", "hello") for number in range(EMAILS - IMPOSSIBLE)]
    emails += [Email(f"nobody{number}", "hello") for number in range(IMPOSSIBLE)]
    await asyncio.gather(*(send.send_async(email) for email in emails))
    print(f"sent {EMAILS} e-mails, {IMPOSSIBLE} of them to addresses that cannot be")
    worker = asyncio.create_task(queue.run_async())
    while not worker.done() and len(server.delivered) + dead_letters() < EMAILS:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    queue.stop()
    await worker


def dead_letters() -> int:
    return sum(metrics.dead_lettered for metrics in queue.metrics().values())


def main() -> None:
    logging.getLogger("headrace.worker").setLevel(logging.CRITICAL)  # failures are what this example is about
    with broker_address(__doc__) as servers, queue:
        queue.configure(bootstrap_servers=servers)
        asyncio.run(work())
        (metrics,) = queue.metrics().values()
        print(
            f"{len(server.delivered)} delivered in {server.calls} calls; {metrics.retried} times tried again"
        )
        print(f"{metrics.dead_lettered} dead letters; {metrics.received} deliveries from the broker")
        account(
            every_email_was_delivered_or_is_dead=len(server.delivered) + metrics.dead_lettered == EMAILS,
            nobody_got_it_twice=len(set(server.delivered)) == len(server.delivered) == EMAILS - IMPOSSIBLE,
            failures_were_tried_again=metrics.retried > 0,
            retries_cost_no_delivery=metrics.received == EMAILS,
        )


if __name__ == "__main__":
    main()
