"""Work that comes round by itself: retention, compaction, removal of old files, old producer ids.

The log manager says what is due; the slow part of each piece runs on a worker thread, its short end on the loop. A
broker in memory does it at once, so that a test that turns the clock sees the result.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.broker.runner import Runner
from headrace.broker.slices import Steps
from headrace.log.background import Work
from headrace.wire.errors import KafkaError

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

logger = logging.getLogger("headrace.broker")

LOGS_PER_STEP = 200
"""Logs that are opened in one turn of the loop."""


class Housekeeping:
    def __init__(self, core: "BrokerCore", runner: Runner) -> None:
        self._core = core
        self._runner = runner
        self._running = 0
        self._is_stopped = False
        self._is_held = False
        self._active = 0
        self._when_idle: Callable[[], None] | None = None
        self._deferred: list[tuple[Work, Callable[[], None]]] = []
        self._arm()
        self._arm_expiry()

    def stop(self) -> None:
        self._is_stopped = True

    def _arm(self) -> None:
        settings = self._core.settings
        interval_ms = min(
            settings.get_int("log.cleaner.backoff.ms"), settings.get_int("log.retention.check.interval.ms")
        )
        self._core.timers.at(self._core.clock.monotonic_ms() + max(1, interval_ms), self._round)

    def _arm_expiry(self) -> None:
        interval_ms = self._core.settings.get_int("producer.id.expiration.check.interval.ms")
        self._core.timers.at(self._core.clock.monotonic_ms() + interval_ms, self._forget_producers)

    def _forget_producers(self) -> None:
        self._arm_expiry()
        self._core.logs.forget_idle_producers(self._core.expiry_clock.wall_ms())

    def _round(self) -> None:
        self._arm()
        if self._running or self._is_stopped or self._is_held or self._core.failure is not None:
            return
        self._core.slices.run(self._open_logs())
        for work in self._core.logs.background_work(self._core.expiry_clock.wall_ms()):
            self._running += 1
            self.start(work, self._note_ended)

    def _open_logs(self) -> Steps:
        """A log that was not used since the start grows old too; those that are opened now are due next time."""
        opened = 0
        for topic in self._core.topics:
            for partition in topic.partitions:
                if partition.opened_log is None and self._core.topics.by_id(topic.id) is topic:
                    try:
                        partition.open()
                    except (OSError, KafkaError) as error:  # its own trouble: the other logs grow old too
                        logger.warning("%s-%d cannot be opened: %s", topic.name, partition.index, error)
                    opened += 1
                    if opened % LOGS_PER_STEP == 0:
                        yield

    def _note_ended(self) -> None:
        self._running -= 1

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
            if self._is_stopped:
                return
            try:
                if error is not None:
                    raise error
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
            self._runner.run_slow(work.run, done)
            return
        try:
            work.run()
        except Exception as error:
            done(error)
        else:
            done(None)
