"""Copies of rejected records in a dead-letter topic, with where they were and why they were given up in headers.

The first six headers are those of KIP-1191, so `headrace dlq` and tools for a broker's own dead letters read them. The
copy is made by the reader when it settles, before the record is acknowledged: at least one copy, and a second one only
if the process dies between the copies and the note that they are made.
"""

from collections.abc import Iterable

from headrace.client.cluster import Cluster
from headrace.client.dead_letters import KAFKA_PREFIX, OUR_PREFIX
from headrace.client.delivery import AcknowledgeType
from headrace.client.plain_fetch import read_range
from headrace.client.plain_produce import produce
from headrace.spark.errors import OutcomeError
from headrace.spark.outcomes import Outcome
from headrace.wire.records import NewRecord, Record, read_records

LETTERS_PER_BATCH = 200


async def copy_rejected(cluster: Cluster, outcomes: Iterable[Outcome], topic: str, group: str) -> int:
    """Writes a dead letter for each rejected record that is still in the log; returns how many."""
    await cluster.refresh([topic])
    target = cluster.topic(topic)
    if target is None:
        raise OutcomeError(
            f"deadLetterTopic={topic!r} does not exist. Create it: `headrace topic create {topic}`."
        )
    letters: dict[int, list[NewRecord]] = {}
    count = 0
    for outcome in outcomes:
        if outcome.type is not AcknowledgeType.REJECT:
            continue
        partition = outcome.partition % len(target.partitions)
        waiting = letters.setdefault(partition, [])
        async for _, batch in read_range(
            cluster, outcome.topic, outcome.partition, outcome.first, outcome.last
        ):
            for record in read_records(batch):
                if outcome.first <= record.offset <= outcome.last:
                    waiting.append(_letter(record, outcome, group))
                    count += 1
        if len(waiting) >= LETTERS_PER_BATCH:
            await produce(cluster, topic, partition, letters.pop(partition))
    for partition, waiting in letters.items():
        if waiting:
            await produce(cluster, topic, partition, waiting)
    return count


def _letter(record: Record, outcome: Outcome, group: str) -> NewRecord:
    facts = {
        KAFKA_PREFIX + "topic": outcome.topic,
        KAFKA_PREFIX + "partition": outcome.partition,
        KAFKA_PREFIX + "offset": record.offset,
        KAFKA_PREFIX + "group": group,
        KAFKA_PREFIX + "delivery.count": outcome.delivery_count,
        KAFKA_PREFIX + "message": outcome.reason or "rejected by a Spark query",
        OUR_PREFIX + "cause": "rejected",
        OUR_PREFIX + "timestamp": record.timestamp,
    }
    own = [header for header in record.headers if not header[0].startswith((KAFKA_PREFIX, OUR_PREFIX))]
    return NewRecord(
        record.key,
        record.value,
        [*own, *((name, str(fact).encode()) for name, fact in facts.items())],
        record.timestamp,
    )
