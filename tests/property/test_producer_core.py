"""The producer's core against model brokers: nothing acknowledged is lost, written twice or out of order.

Method: two brokers, two partitions, one producer. Hypothesis decides what is sent, what the network does (responses
late, responses lost after the broker acted, requests that arrive long after their connection was given up), what
brokers do (refuse, refuse after the append, move partitions, restart and forget all but the last batch of a producer)
and how time goes. At the end the network is well, and every record has exactly one outcome.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from headrace.client.errors import error_for
from headrace.client.producing.batch import Entry, Identity, ProducerBatch, ValueRun
from headrace.client.producing.core import ProducerCore
from headrace.client.settings import ProducerSettings
from headrace.wire.batches import Compression
from headrace.wire.errors import ErrorCode
from tests.property.producer_model import ModelCluster

NODES, PARTITIONS = 2, 2
DELIVERY_MS = 5_000
LOST = error_for(ErrorCode.NETWORK_EXCEPTION, "lost")
REFUSALS = [
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.KAFKA_STORAGE_ERROR,
]


class Flight:
    """A request on its way, and later its response."""

    def __init__(self, node: int, batches: list[ProducerBatch]) -> None:
        self.node = node
        self.batches = batches
        self.encoded = {
            batch.partition: batch.encode(Compression.NONE, is_transactional=False) for batch in batches
        }
        self.results: Any = None


class ProducerMachine(RuleBasedStateMachine):
    @initialize(
        linger_ms=st.sampled_from([0, 50]),
        in_flight=st.sampled_from([1, 5, 5, 5]),
        batch_size=st.sampled_from([1, 1, 250]),
        first_epoch=st.sampled_from([0, 32_765]),
    )
    def start(self, linger_ms: int, in_flight: int, batch_size: int, first_epoch: int) -> None:
        given = ProducerSettings.parse(
            bootstrap_servers="x:1",
            linger_ms=linger_ms,
            batch_size=batch_size,
            max_in_flight_requests_per_connection=in_flight,
            delivery_timeout_ms=DELIVERY_MS,
            buffer_memory=10_000_000,
        )
        self.first_epoch = first_epoch
        self.random = 0
        self.now_ms = 0.0
        self.cluster = ModelCluster(PARTITIONS, NODES)
        self.core = ProducerCore(given, random_below=self.draw, fraction=lambda: 0.5)
        self.flights: dict[int, list[Flight]] = {node: [] for node in range(NODES)}
        """By connection; a broker handles the requests of one in their order."""
        self.zombies: list[Flight] = []
        """Requests of connections that the client has given up, which the broker has yet to read."""
        self.sent: list[tuple[int | None, int]] = []
        self.outcomes: dict[int, Any] = {}
        self.forced = 0
        self.pump()

    def draw(self, below: int) -> int:
        self.random += 1
        return self.random % below

    # The driver

    def pump(self) -> None:
        plan = self.core.plan(self.now_ms)
        while plan:
            for node, ready in plan.items():
                self.flights[node].append(Flight(node, self.core.take(node, ready)))
            plan = self.core.plan(self.now_ms)
        if self.core.wants_identity:
            self.core.identified(Identity(self.cluster.new_producer_id(), self.first_epoch))
            self.pump()
        if self.core.wants_metadata():
            self.core.learn("t", b"id", dict(self.cluster.leaders), self.now_ms)
            self.pump()
        self.collect()

    def collect(self) -> None:
        for outcome in self.core.pop_outcomes():
            tokens: list[int] = []
            for token in outcome.tokens:
                tokens += range(token[1], token[1] + token[2]) if isinstance(token, tuple) else [token]
            for place, token in enumerate(tokens):
                assert token not in self.outcomes, f"record {token} has two outcomes"
                offset = outcome.base_offset + place if outcome.base_offset >= 0 else -1
                self.outcomes[token] = (outcome.partition, offset, outcome.error)
                if outcome.error is None and offset >= 0:
                    log = self.cluster.partitions[outcome.partition].log
                    assert log[offset].startswith(b"%d " % token), f"record {token} is not at {offset}"

    def handle(self, flight: Flight, refusal: int = 0) -> None:
        if flight.results is None:
            flight.results = self.cluster.produce(flight.node, flight.encoded, refusal)

    def cut(self, node: int) -> None:
        """The connection ends: nothing on it is answered, and what the broker has not read may still come."""
        flights, self.flights[node] = self.flights[node], []
        for flight in flights:
            if flight.results is None:
                self.zombies.append(flight)
            self.core.lost(node, flight.batches, LOST, self.now_ms)
        self.pump()

    # What may happen

    @rule(
        size=st.integers(1, 120), count=st.integers(1, 6), partition=st.one_of(st.none(), st.integers(0, 1))
    )
    def send(self, size: int, count: int, partition: int | None) -> None:
        for _ in range(count):
            self.put(size, partition)
        self.pump()

    @rule(sizes=st.lists(st.sampled_from([1, 1, 50, 60, 120]), min_size=2, max_size=12))
    def send_run(self, sizes: list[int]) -> None:
        first = len(self.sent)
        values = [b"%d " % (first + place) + b"x" * size for place, size in enumerate(sizes)]
        self.sent += ((None, size) for size in sizes)
        self.core.put(ValueRun("t", values, 0, (self, first, len(sizes)), sum(sizes)), self.now_ms)
        self.pump()

    @rule(partition=st.integers(0, 1))
    def send_too_large(self, partition: int) -> None:
        self.put(600, partition)
        self.pump()

    def put(self, size: int, partition: int | None) -> None:
        number = len(self.sent)
        self.sent.append((partition, size))
        value = b"%d " % number + b"x" * size
        self.core.put(Entry("t", partition, None, value, (), 0, number, size), self.now_ms)

    @precondition(lambda self: any(self.flights.values()))
    @rule(node=st.integers(0, NODES - 1))
    def answer(self, node: int) -> None:
        if self.flights[node]:
            flight = self.flights[node].pop(0)
            self.handle(flight)
            self.core.answered(node, flight.batches, flight.results, self.now_ms)
            self.pump()

    @precondition(lambda self: any(self.flights.values()))
    @rule(node=st.integers(0, NODES - 1), code=st.sampled_from(REFUSALS))
    def refuse(self, node: int, code: int) -> None:
        if self.flights[node]:
            flight = self.flights[node].pop(0)
            self.handle(flight, code)
            self.core.answered(node, flight.batches, flight.results, self.now_ms)
            self.pump()

    @precondition(lambda self: any(self.flights.values()))
    @rule(node=st.integers(0, NODES - 1), handled=st.integers(0, 5))
    def cut_after(self, node: int, handled: int) -> None:
        """The broker has handled some of the requests when the connection ends."""
        for flight in self.flights[node][:handled]:
            self.handle(flight)
        self.cut(node)

    @precondition(lambda self: self.zombies)
    @rule()
    def late_arrival(self) -> None:
        self.handle(self.zombies.pop(0))

    @rule(node=st.integers(0, NODES - 1), partition=st.integers(0, PARTITIONS - 1))
    def move(self, node: int, partition: int) -> None:
        self.cluster.leaders[partition] = node

    @rule()
    def restart(self) -> None:
        self.zombies = []
        for partition in self.cluster.partitions:
            partition.restart()
        for node in range(NODES):
            for flight in self.flights[node]:
                flight.results = flight.results or {}
            self.cut(node)

    @rule(ms=st.sampled_from([1, 60, 300, 2_000, DELIVERY_MS]))
    def wait(self, ms: int) -> None:
        self.now_ms += ms
        self.pump()

    @rule()
    def flush(self) -> None:
        self.core.flush()
        self.pump()

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        number = self.core.flush()
        for _ in range(400):
            if self.core.is_flushed(number) and not any(self.flights.values()):
                break
            self.now_ms += 100
            self.pump()
            for node in range(NODES):
                self.answer(node)
        assert set(self.outcomes) == set(range(len(self.sent))), "some records have no outcome"
        assert self.core.is_flushed(number)
        for zombie in self.zombies:
            self.handle(zombie)
        self.check_logs()

    def check_logs(self) -> None:
        for index, partition in enumerate(self.cluster.partitions):
            numbers = [int(value.split()[0]) for value in partition.log]
            assert len(numbers) == len(set(numbers)), f"partition {index} has records twice: {numbers}"
            acknowledged = [number for number in numbers if self.outcomes[number][2] is None]
            assert acknowledged == sorted(acknowledged), f"partition {index} is out of order: {acknowledged}"
        for number, (partition, _, error) in self.outcomes.items():
            if error is None:
                log = self.cluster.partitions[partition].log
                assert sum(value.startswith(b"%d " % number) for value in log) == 1, (
                    f"record {number} is lost"
                )
            elif self.sent[number][1] < 300:
                assert error.code in (
                    ErrorCode.REQUEST_TIMED_OUT,
                    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                ), error


ProducerMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
TestProducer = ProducerMachine.TestCase
