"""The contests of `python -m bench`: what `--only` calls them, how long they go on, what their tables say."""

from collections.abc import Callable, Collection
from pathlib import Path

from bench import bounds, client, producers, slow, tls
from bench.brokers import Apache
from bench.contest import Contest
from bench.keys import run as keys
from bench.machine import spin_s
from bench.queues import run as queues
from bench.spark import run as spark

CONTESTS = ("bounds", "client", "producers", "tls", "slow", "queues", "keys", "spark")
TITLES = {
    "bounds": "Bounds: what one client costs beside many others, or after a long history.",
    "client": "Share consumers: ours and confluent-kafka's on the same broker, 1 partition, page cache.",
    "producers": "Producers: ours, confluent-kafka's and aiokafka's on our broker, 1 partition, fsync, idempotent.",
    "tls": "TLS: both brokers with and without it, 1 partition, page cache; librdkafka, except for the raw client.",
    "slow": "Slow work: 5 ms of waiting a record, 2 partitions; each consumer is a process of its own.",
    "queues": "Queues: all messages are sent, then consumers deliver and acknowledge them. Task queues: all jobs are"
    " enqueued, then a worker works them off, ten at once; each ran exactly once.",
    "keys": "Order by key: 2 partitions, 1,000 keys, 100 records at once; one process, a member of a consumer group.",
    "spark": "Spark: kafka-share against Spark's own Kafka source, noop sink; 2 partitions and 100 bytes a record"
    " where nothing else is said.",
}
REFERENCES = {
    "bounds": bounds.REFERENCE,
    "client": client.CONFLUENT,
    "producers": producers.CONFLUENT,
    "tls": Apache.name,
    "slow": slow.REFERENCE,
    "queues": queues.OURS,
    "keys": keys.PARALLEL,
    "spark": spark.REFERENCE,
}
ROUNDS = {"bounds": 1, "client": 2, "producers": 2, "tls": 2, "slow": 1, "queues": 2, "keys": 2, "spark": 2}
CLIENT_S, TLS_S, SLOW_S = 1.5, 1.2, 2.0


def run_contest(
    name: str,
    folder: Path,
    *,
    rounds: int | None,
    seconds: float | None,
    before: Path | None,
    cases: Collection[str] = (),
    quick: bool = False,
    spins_s: list[float],
    say: Callable[[str], None],
) -> Contest:
    """`cases` is of Spark's contest. `spins_s` gets readings of the machine's noise, before and after."""
    spins_s.append(spin_s())
    contest = Contest(TITLES[name], reference=REFERENCES[name])
    rounds = rounds or ROUNDS[name]
    folder.mkdir()
    if name == "bounds":
        bounds.run_bounds(contest, folder, rounds=rounds, before=before, say=say)
    elif name == "client":
        client.run_clients(contest, folder, rounds=rounds, seconds=seconds or CLIENT_S, say=say)
    elif name == "producers":
        producers.run_producers(contest, folder, rounds=rounds, seconds=seconds or CLIENT_S, say=say)
    elif name == "tls":
        tls.run_tls(contest, folder, rounds=rounds, seconds=seconds or TLS_S, say=say)
    elif name == "slow":
        slow.run_slow(contest, folder, rounds=rounds, seconds=seconds or SLOW_S, say=say)
    elif name == "queues":
        queues.run_queues(contest, folder, rounds=rounds, say=say)
    elif name == "keys":
        keys.run_keys(contest, folder, rounds=rounds, quick=quick, say=say)
    else:
        spark.run_spark(contest, folder, rounds=rounds, cases=cases, say=say)
    spins_s.append(spin_s())
    return contest
