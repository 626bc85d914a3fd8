"""Our consumers at work on a stream of records while brokers come and go, and what is said of it at the end."""

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.chaos.checker import Checker
from tests.chaos.headrace_member import HeadraceMember, Way
from tests.chaos.history import ACCEPT, REJECT, History
from tests.chaos.server_process import choose_seed
from tests.chaos.stream import SteadyProducer, read_all
from tests.cluster.brokers import Brokers, wait_until

PARTITIONS = 4
LOCK_S = 10.0
DELIVERIES_MAX = 5
RECORDS_PER_S = 150
MEMBERS = {
    "sync-implicit": (Way.IMPLICIT, False),
    "sync-explicit": (Way.EXPLICIT, False),
    "sync-held": (Way.HELD, False),
    "async-implicit": (Way.IMPLICIT, True),
    "async-explicit": (Way.EXPLICIT, True),
    "async-held": (Way.HELD, True),
}
JOIN_S = 60.0


class Crew:
    """One consumer of each kind in one group, and one producer."""

    def __init__(self, brokers: Brokers, topic: str, group: str, **settings: Any) -> None:
        seed = choose_seed()
        print(f"seed {seed}")
        choose = random.Random(seed)
        self.history = History()
        self._brokers = brokers
        self._topic = topic
        self._group = group
        self._stopped_at = 0.0
        self.producer = SteadyProducer(
            1,
            self.history,
            brokers.addresses,
            topic=topic,
            partitions=PARTITIONS,
            records_per_s=RECORDS_PER_S,
        )
        self.members = [
            HeadraceMember(
                member,
                self.history,
                brokers.addresses,
                choose.randrange(2**31),
                group=group,
                topic=topic,
                way=way,
                is_async=is_async,
                pause_s=0.1,
                **settings,
            )
            for member, (way, is_async) in MEMBERS.items()
        ]

    def wait_until_all_work(self) -> None:
        """Until every member has had confirmations, and every partition accepts, that it had not when this began."""
        before = {member.name: member.book.confirmed for member in self.members}
        began_at = time.monotonic()

        def idle() -> list[str | int]:
            self._raise_failures()
            members = [one.name for one in self.members if one.book.confirmed == before[one.name]]
            confirmed = [one for one in list(self.history.answers) if (one.confirmed_at or 0.0) > began_at]
            busy = {one.place[0] for one in confirmed if one.sent_at > began_at}
            return [*members, *(set(range(PARTITIONS)) - busy)]

        try:
            wait_until("every member and partition is at work", lambda: not idle())
        except AssertionError as error:
            error.add_note(f"idle are {idle()}")
            for member in self.members:
                if member.name in idle():
                    error.add_note(member.state())
            raise

    def finish(self) -> None:
        """Ends the stream, lets the members work it off, and judges what they saw."""
        self.producer.stop()
        self.producer.join(JOIN_S)
        assert not self.producer.is_alive()
        assert self.producer.failed == []
        self._stopped_at = time.monotonic()
        try:
            wait_until("all is worked off", self._is_worked_off)
        except AssertionError as error:
            error.add_note(self._what_is_left())
            raise
        self._end_members()
        history = self.history
        history.log = {
            (one.partition() or 0, one.offset() or 0): one.value() or b""
            for one in read_all(self._brokers.addresses, self._topic, PARTITIONS)
        }
        history.find_places()
        print(history.summary())
        checker = Checker(history, lock_s=LOCK_S, deliveries_max=DELIVERIES_MAX, has_dead_letters=False)
        violations = checker.violations()
        assert violations == [], "\n".join(violations[:20])

    def _is_worked_off(self) -> bool:
        """The broker counts no records, or gives none to members that poll for longer than any lock lasts.

        Apache Kafka's count may stay above zero after a coordinator of share state was killed, until the next write,
        although every record has a confirmed answer: a retried write of older state can overtake a newer one
        (docs/how-to/grow-to-a-cluster.md, "Lag that stays above zero").
        """
        self._raise_failures()
        last_at = max((one.received_at for one in list(self.history.deliveries)), default=0.0)
        is_quiet = time.monotonic() - max(last_at, self._stopped_at) > 2 * LOCK_S
        return is_quiet or not any(self._brokers.lag(self._group, PARTITIONS).values())

    def _what_is_left(self) -> str:
        settled = {
            one.place for one in self.history.answers if one.confirmed_at and one.kind in (ACCEPT, REJECT)
        }
        left = {one.place for one in self.history.produced} - settled
        last = [one for one in self.history.deliveries if one.place in left][-10:]
        lag = self._brokers.lag(self._group, PARTITIONS)
        return f"lag {lag}; {len(left)} not confirmed, {sorted(left)[:20]}; last deliveries of these: {last}"

    def _raise_failures(self) -> None:
        for member in self.members:
            if member.failure is not None:
                raise member.failure

    def _end_members(self) -> None:
        for member in self.members:
            member.stop()
        for member in self.members:
            member.join(JOIN_S)
        assert [member.name for member in self.members if member.is_alive()] == []
        self._raise_failures()


@contextmanager
def at_work(brokers: Brokers, topic: str, group: str | None = None, **settings: Any) -> Iterator[Crew]:
    """A crew on a topic of `PARTITIONS` that nobody has read yet. It is judged when the block ends.

    `settings` are the consumers'.
    """
    brokers.set_group(group or topic, lock_s=LOCK_S)
    crew = Crew(brokers, topic, group or topic, **settings)
    threads = [crew.producer, *crew.members]
    for thread in threads:
        thread.start()
    try:
        crew.wait_until_all_work()
        yield crew
        crew.finish()
    finally:
        for thread in threads:
            thread.stop()
        for thread in threads:
            thread.join(JOIN_S)
