"""What option maxBatchFailures does when a query starts: how much of a micro-batch that has failed is run next.

The rules are in `dividing.py`; here they are carried out, and written down before Spark gets a part.
"""

import logging
from dataclasses import replace

from headrace.spark.checkpoint import brings_one_source
from headrace.spark.dividing import Division
from headrace.spark.locations import Location
from headrace.spark.offset import AcquiredOffset
from headrace.spark.outcomes import OutcomeLog
from headrace.spark.settle import Ledger

logger = logging.getLogger("headrace.spark")


class Isolation:
    def __init__(self, failures_max: int, ledger: Ledger) -> None:
        """`failures_max` is 0 where nothing is divided."""
        self._failures_max = failures_max
        self._ledger = ledger

    def recover(self, offset: AcquiredOffset, notes: OutcomeLog) -> None:
        """An earlier life has perhaps run a part of this micro-batch only, whichever options it has now."""
        found = notes.kept_division()
        if found is not None:
            division = Division.from_json(found)
            if division.is_of(offset):
                self._ledger.division = division

    def divide(self, offset: AcquiredOffset, log_file: Location, notes: OutcomeLog) -> None:
        """Decides how much of a micro-batch that Spark replays is run, and writes it down."""
        if not self._failures_max:
            return
        before = self._ledger.division or Division.whole(offset)
        batch_id = int(log_file.name)
        failures = notes.failures(batch_id)
        if notes.has(batch_id):
            after = replace(before, has_succeeded=True)
        else:
            after = before.after(failures, self._failures_max, is_part=bool(offset.later))
        if after == before:
            return
        if not after.has_succeeded and not brings_one_source(log_file):
            logger.warning(
                "Micro-batch %d has failed %d times, but is not divided: other sources of the query have records in "
                "it, too.", batch_id, failures.times,
            )  # fmt: skip
            return
        notes.keep_division(after.to_json())
        self._ledger.division = after
        if after.rejected:
            for (topic, partition), run in after.rejected:
                logger.error(
                    "%s-%d@%d is rejected, since a micro-batch of it alone has failed %d times: %s",
                    topic, partition, run.first, self._failures_max, after.reason,
                )  # fmt: skip
        elif not after.has_succeeded:
            logger.warning(
                "Micro-batch %d has failed %d times (%s). %d of its %d records are run now, to find the one that it "
                "fails on; the others follow.",
                batch_id, after.failures, failures.error, after.given.record_count, after.batch.record_count,
            )  # fmt: skip
