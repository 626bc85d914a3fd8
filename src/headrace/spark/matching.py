"""Which outcomes are about a micro-batch: those that name a delivery of it. Pure, and n log n.

A micro-batch holds each record once, with its delivery count. So outcomes are put beside the runs of the same
partition and delivery count, and both are walked over once. Where several name one delivery, the last counts.
"""

from collections.abc import Sequence

from headrace.base.ranges import flattened, within
from headrace.spark.outcomes import Outcome, to_runs
from headrace.spark.runs import Run, RunSet
from headrace.wire.ids import TopicAndPartition


def match(outcomes: Sequence[Outcome], planned: RunSet) -> tuple[list[Outcome], RunSet]:
    """The outcomes, cut to the planned deliveries that they name, each delivery once; and what they name beside."""
    said: dict[tuple[TopicAndPartition, int], list[Outcome]] = {}
    for each in outcomes:
        said.setdefault((each.place, each.delivery_count), []).append(each)
    runs: dict[tuple[TopicAndPartition, int], list[Run]] = {}
    for place, run in planned:
        runs.setdefault((place, run.delivery_count), []).append(run)
    meant = [each for key in said for each in within(flattened(said[key]), runs.get(key, []))]
    return meant, to_runs(outcomes).minus(to_runs(meant))
