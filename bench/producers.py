"""Our producer against confluent-kafka's and aiokafka's: one record after the other, and as many as go."""

from collections.abc import Callable
from pathlib import Path

from bench.brokers import BrokerProcess, Headrace, Policy
from bench.contest import Contest, Measure
from bench.run import in_turn
from bench.tasks import run_client
from bench.wire import Connection, create_topic

HEADRACE, CONFLUENT, AIOKAFKA = "headrace", "confluent", "aiokafka"
TOPIC = "producers"
ONE = Measure("one after the other", "records/s", True)
ONE_CPU = Measure("one after the other: client CPU", "us/record", False)
MANY = Measure("many", "records/s", True, limits={("fsync", HEADRACE): 100_000})
MANY_CPU = Measure("many: client CPU", "us/record", False)
MEASURES = {"one": (ONE, ONE_CPU), "many": (MANY, MANY_CPU)}


def run_producers(
    contest: Contest, folder: Path, *, rounds: int, seconds: float, say: Callable[[str], None]
) -> None:
    """On our broker, with fsync before every acknowledgement. The first round warms and does not count."""
    broker: BrokerProcess = Headrace(folder, bytecode=folder / "bytecode")
    try:
        running = broker.start(Policy.FSYNC)
        with Connection(running.bootstrap_servers) as admin:
            create_topic(admin, TOPIC, partitions=1)
        for number in range(rounds + 1):
            for client in in_turn([HEADRACE, CONFLUENT, AIOKAFKA], number):
                say(f"producers: round {number} of {rounds}: {client}")
                for task, (rate, cpu) in MEASURES.items():
                    figures = run_client("producers", f"{client}-{task}", running, TOPIC, seconds=seconds)
                    if number:
                        contest.add(rate, "fsync", client, figures.records / figures.seconds)
                        contest.add(
                            cpu, "fsync", client, figures.busy * figures.seconds * 1e6 / figures.records
                        )
    finally:
        broker.stop()
