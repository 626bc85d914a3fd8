"""`headrace consume` as a member of a share group: polls, prints, answers, and commits the answers."""

import signal
import time
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import TYPE_CHECKING

from headrace.cli.consume import Output
from headrace.cli.failures import say
from headrace.cli.formats import Shown

if TYPE_CHECKING:
    from headrace.client.delivery import Delivery, TopicPartition
    from headrace.client.sync import ShareConsumer
    from headrace.wire.errors import KafkaError

POLL_S = 1.0
JOIN_S_MAX = 15.0
"""Joining the group does not count as silence, until a broker has answered a first fetch or this is over."""


def run(
    settings: Mapping[str, str],
    topics: Sequence[str],
    group_id: str,
    out: Output,
    timeout: float | None,
    answer: str | None,
) -> None:
    """`answer` is accept, release or reject; None leaves it to the next poll (implicit mode)."""
    from headrace.client.sync import ShareConsumer

    chosen = {
        "group.id": group_id,
        "share.acknowledgement.mode": "implicit" if answer is None else "explicit",
    }
    if out.left is not None:
        # Acquired is delivered: what is taken beyond --max would count as delivered, and wait until we let go.
        chosen |= {"share.acquire.mode": "record_limit"}
    with ShareConsumer({**chosen, **settings}) as consumer, _Stop(consumer) as stop:
        consumer.subscribe(topics)
        quiet_since, may_join_until = time.monotonic(), time.monotonic() + JOIN_S_MAX
        while not stop.is_asked and out.left != 0:
            out.require_reader()
            deliveries = _poll(consumer, POLL_S if timeout is None else min(POLL_S, timeout), out.left)
            now = time.monotonic()
            is_joining = consumer.acquisition_lock_timeout_ms() is None and now < may_join_until
            if deliveries:
                _work_off(consumer, deliveries, out, answer)
            if deliveries or is_joining:
                quiet_since = time.monotonic()
            elif timeout is not None and now - quiet_since >= timeout:
                return


class _Stop:
    """Ctrl+C and SIGTERM end the wait; what was taken by then is still printed and answered for."""

    def __init__(self, consumer: "ShareConsumer") -> None:
        self._consumer = consumer
        self._before: dict[signal.Signals, object] = {}
        self.is_asked = False

    def __enter__(self) -> "_Stop":
        for name in (signal.SIGINT, signal.SIGTERM):
            self._before[name] = signal.signal(name, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for name, handler in self._before.items():
            signal.signal(name, handler)  # type: ignore[arg-type]

    def _ask(self, number: int, _: FrameType | None) -> None:
        if self.is_asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.is_asked = True
        self._consumer.wakeup()


def _poll(consumer: "ShareConsumer", timeout: float, records_max: int | None) -> "list[Delivery]":
    from headrace.client.errors import WakeupError

    try:
        return consumer.poll(timeout=timeout, max_records=records_max)
    except WakeupError:
        return []


def _work_off(
    consumer: "ShareConsumer", deliveries: "list[Delivery]", out: Output, answer: str | None
) -> None:
    wanted = deliveries if out.left is None else deliveries[: out.left]
    out.emit(_shown(delivery) for delivery in wanted)
    if answer is not None:
        for delivery in wanted:
            getattr(delivery, answer)()
        for delivery in deliveries[len(wanted) :]:
            delivery.release()
    for place, error in _commit(consumer).items():
        if error is not None:
            say(f"headrace consume: {place.topic}-{place.partition}: {error}")


def _commit(consumer: "ShareConsumer") -> "dict[TopicPartition, KafkaError | None]":
    """A signal that came while records were printed wakes the next call, which is this one; they are answered for."""
    from headrace.client.errors import WakeupError

    while True:
        try:
            return consumer.commit_sync()
        except WakeupError:
            continue


def _shown(delivery: "Delivery") -> Shown:
    return Shown(
        topic=delivery.topic,
        partition=delivery.partition,
        offset=delivery.offset,
        timestamp=delivery.timestamp,
        key=delivery.key,
        value=delivery.value,
        headers=delivery.headers,
        delivery_count=delivery.delivery_count,
        lock_deadline_ms=int(delivery.lock_deadline * 1000),
    )
