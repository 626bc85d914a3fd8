"""Work that comes round by itself: retention, compaction, removal of old files, old producer ids.

The log manager says what is due. It looks for that in steps of bounded cost; the slow part of each piece runs on a
worker thread, its short end on the loop. A broker in memory does it at once, so that a test that turns the clock sees
the result.

Two rounds have the intervals that they have in Apache Kafka. Retention comes every log.retention.check.interval.ms;
that of compacted logs comes with compaction, every log.cleaner.backoff.ms. The removal of old files, which must not
wait for a long compaction, comes with both.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.broker.runner import Runner
from headrace.broker.slices import Steps
from headrace.log.background import STEP_COST, Pace, Work
from headrace.log.manager import CLOSING
from headrace.wire.errors import KafkaError

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

logger = logging.getLogger("headrace.broker")

LOGS_PER_STEP = 100
"""Logs that are opened in one turn of the loop."""
OPENING_COST = STEP_COST // LOGS_PER_STEP
FIRST_RETENTION_MS = 30_000
"""After the start, as in Apache Kafka: brokers that are often started anew remove old records, too."""


class Housekeeping:
    def __init__(self, core: "BrokerCore", runner: Runner) -> None:
        self._core = core
        self._runner = runner
        self._rounds: set[str] = set()
        self._works: set[str] = set()
        """Under way, of those that run once at a time."""
        self._is_stopped = False
        self._is_held = False
        self._active = 0
        self._when_idle: Callable[[], None] | None = None
        self._deferred: list[tuple[Work, Callable[[], None]]] = []
        self._arm_retention(FIRST_RETENTION_MS)
        self._arm_cleaning()
        self._arm_expiry()

    def stop(self) -> None:
        self._is_stopped = True

    def _arm_retention(self, at_most_ms: int | None = None) -> None:
        interval_ms = self._core.settings.get_int("log.retention.check.interval.ms")
        wait_ms = interval_ms if at_most_ms is None else min(interval_ms, at_most_ms)
        self._core.timers.at(self._core.clock.monotonic_ms() + wait_ms, self._retain)

    def _arm_cleaning(self) -> None:
        interval_ms = self._core.settings.get_int("log.cleaner.backoff.ms")
        self._core.timers.at(self._core.clock.monotonic_ms() + max(1, interval_ms), self._clean)

    def _arm_expiry(self) -> None:
        interval_ms = self._core.settings.get_int("producer.id.expiration.check.interval.ms")
        self._core.timers.at(self._core.clock.monotonic_ms() + interval_ms, self._forget_producers)

    def _forget_producers(self) -> None:
        self._arm_expiry()
        self._round("producers", self._core.logs.forget_idle_producers(self._core.expiry_clock.wall_ms()))

    def _retain(self) -> None:
        self._arm_retention()
        self._round("retention", self._retention())

    def _clean(self) -> None:
        self._arm_cleaning()
        self._round("cleaning", self._cleaning())

    def _round(self, kind: str, steps: Steps) -> None:
        """Unless the one before has not ended."""

        def guarded() -> Steps:
            try:
                yield from steps
            finally:
                self._rounds.discard(kind)

        if self._may_begin and kind not in self._rounds:
            self._rounds.add(kind)
            self._core.slices.run(guarded())

    @property
    def _may_begin(self) -> bool:
        return not (self._is_stopped or self._is_held) and self._core.failure is None

    def _retention(self) -> Steps:
        core = self._core
        yield from self._open_logs()
        yield from core.logs.expire(core.expiry_clock.wall_ms(), is_compacted=False)
        self._remove_old_files()

    def _cleaning(self) -> Steps:
        core = self._core
        yield from core.logs.expire(core.expiry_clock.wall_ms(), is_compacted=True)
        works = yield from core.logs.closing_and_compaction(core.expiry_clock.wall_ms())
        closing = next((work for work in works if work.what == CLOSING), None)
        self._start_one(CLOSING, lambda: closing)
        for work in works:
            if work is not closing:
                self.start(work)
        self._remove_old_files()

    def _remove_old_files(self) -> None:
        logs, now_ms = self._core.logs, self._core.expiry_clock.wall_ms()
        self._start_one("removal", lambda: logs.removal(now_ms))
        self._start_one("refill", logs.refill)

    def _start_one(self, kind: str, find: Callable[[], Work | None]) -> None:
        """Unless the one before is still running."""
        if not self._may_begin or kind in self._works:
            return
        work = find()
        if work is not None:
            self._works.add(kind)
            self.start(work, lambda: self._works.discard(kind))

    def _open_logs(self) -> Steps:
        """A log that was not used since the start grows old too; those that are opened now are due next time."""
        pace = Pace()
        for topic in self._core.topics:
            for partition in topic.partitions:
                is_unopened = partition.opened_log is None
                if pace.spend(OPENING_COST if is_unopened else 1):
                    yield
                if is_unopened and self._core.topics.by_id(topic.id) is topic:
                    try:
                        partition.open()
                    except (OSError, KafkaError) as error:  # its own trouble: the other logs grow old too
                        logger.warning("%s-%d cannot be opened: %s", topic.name, partition.index, error)

    def hold(self, ready: Callable[[], None]) -> None:
        """Calls `ready` when nothing is under way: from then until `release` no file is removed or rewritten."""
        self._is_held = True
        self._core.logs.store.is_held = True
        self._when_idle = ready
        self._note_idle()

    def release(self) -> None:
        self._is_held = self._core.logs.store.is_held = False
        self._when_idle = None
        deferred, self._deferred = self._deferred, []
        for work, ended in deferred:
            self.start(work, ended)

    def _note_idle(self) -> None:
        if not self._active and self._when_idle is not None:
            ready, self._when_idle = self._when_idle, None
            ready()

    def start(self, work: Work, ended: Callable[[], None] = lambda: None) -> None:
        """Runs it beside the loop, then its short part on the loop; then calls `ended`, whether it failed or not."""

        def done(error: Exception | None) -> None:
            if not self._is_stopped:
                self._core.slices.run(finishing(error))

        def finishing(error: Exception | None) -> Steps:
            try:
                if error is not None:
                    raise error
                if work.finishing is not None:
                    yield from work.finishing()
                else:
                    work.finish()
            except OSError as failure:
                self._core.fail(failure)
            except Exception:
                logger.exception("%s failed", work.what)
            ended()
            self._active -= 1
            self._note_idle()

        if self._is_held:
            self._deferred.append((work, ended))
            return
        self._active += 1
        if not self._core.logs.disk.is_volatile:
            run = self._runner.run if work.is_short else self._runner.run_slow
            run(work.run, done)
            return
        try:
            work.run()
        except Exception as error:
            done(error)
        else:
            done(None)
