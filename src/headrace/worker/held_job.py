"""A record that a worker holds, with the attempts that it has had.

A copy of the record, which is tried later as a new record, has its attempts in a header.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.client.delivery import Delivery
from headrace.wire.dead_letter import ATTEMPTS
from headrace.worker.bodies import Header
from headrace.worker.jobs import Job

DIGITS_MAX = 9
"""Anybody may write the header; Python refuses to read numbers of some thousand digits."""


@dataclass(slots=True, eq=False, kw_only=True)
class HeldJob(Job):
    """The scheduler's job, and the record that it is about."""

    delivery: Delivery
    task: str
    """The name of its task."""

    @classmethod
    def of(cls, delivery: Delivery, task: str) -> "HeldJob":
        return cls(
            delivery.partition, delivery.offset, delivery.key, delivery.delivery_count,
            carried=carried_attempts(delivery.headers), delivery=delivery, task=task,
        )  # fmt: skip

    def headers_of_copy(self) -> tuple[Header, ...]:
        own = tuple(header for header in self.delivery.headers if header[0] != ATTEMPTS)
        return (*own, (ATTEMPTS, str(self.attempts).encode()))

    def __str__(self) -> str:
        return f"{self.delivery.topic}-{self.partition}@{self.offset}"


def carried_attempts(headers: Iterable[Header]) -> int:
    """The attempts that earlier copies of a record have had."""
    values = [value for name, value in headers if name == ATTEMPTS and value is not None]
    last = values[-1] if values else b""
    return int(last) if last.isdigit() and len(last) <= DIGITS_MAX else 0
