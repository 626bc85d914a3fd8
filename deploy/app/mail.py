"""The queue that deploy/kubernetes/workers.yaml runs: put your own in its place."""

import os
from dataclasses import dataclass

from headrace import Backoff, Queue, Reject

queue = Queue(os.environ.get("HEADRACE_BOOTSTRAP_SERVER", "localhost:9092"), group_id="mailers")


@dataclass
class Email:
    to: str
    subject: str


@queue.task(
    "emails", concurrency=64, retries=Backoff(first=1.0, factor=2.0, most=60.0), dead_letter="emails.dead"
)
async def send(email: Email) -> None:
    if "@" not in email.to:
        raise Reject("no such address")
    print("sent", email.subject, "to", email.to, flush=True)
