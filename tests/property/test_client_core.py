"""The share client's core against a model cluster: every delivery is settled exactly once, or lost and reported.

Method: two brokers, three partitions, one member. Hypothesis decides what the user does (take, acknowledge, sweep,
commit), what the network does (answers, answers that are lost after the broker acted, requests that never arrive),
what brokers do (drop sessions, miscount epochs, move partitions, fail to write, fence the member) and how time goes.
The model refuses what no client may do: two requests in flight, wrong epochs, acknowledgements for an acquisition
that is over. At the end the network is kept well, everything is acknowledged, and it must all drain.
"""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.client.core.acknowledgements import Commit
from headrace.client.core.acquired import ACCEPT, REJECT, RELEASE, RENEW, Acquired
from headrace.client.core.member import MemberCore
from headrace.client.core.membership import State
from headrace.client.core.placement import TopicView
from headrace.client.core.session import Session
from headrace.client.errors import error_for
from headrace.client.settings import ShareSettings
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.share_group_heartbeat_response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.property.client_model import LOCK_MS, TOPIC_ID, ModelCluster

NODES, PARTITIONS, POLL = 2, 3, 4
BUFFERED_MAX = 2 * NODES * POLL
TERMINAL = {ACCEPT, RELEASE, REJECT, 0}
AGAIN = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.INVALID_RECORD_STATE,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
}
NETWORK = error_for(ErrorCode.NETWORK_EXCEPTION, "lost")
nodes, partitions = st.integers(0, NODES - 1), st.integers(0, PARTITIONS - 1)
kinds = st.sampled_from([ACCEPT, ACCEPT, RELEASE, REJECT, RENEW])


class ClientMachine(RuleBasedStateMachine):
    @initialize(auto_renew=st.booleans(), is_strict=st.booleans(), is_ahead=st.booleans())
    def start(self, auto_renew: bool, is_strict: bool, is_ahead: bool) -> None:
        self.cluster = ModelCluster(PARTITIONS, NODES)
        given = ShareSettings.parse(
            bootstrap_servers="x:1",
            group_id="g",
            share_acknowledgement_mode="explicit",
            max_poll_records=POLL,
            auto_renew=auto_renew,
            auto_renew_max_ms=3 * LOCK_MS,
            share_acquire_mode="record_limit" if is_strict else "batch_optimized",
            max_poll_interval_ms=20 * LOCK_MS,
        )
        self.capacity = 8 if is_ahead else 0
        self.core = MemberCore(given, "m", capacity=self.capacity, is_ahead=is_ahead, fraction=lambda: 0.5)
        self.ids: dict[int, int] = {}
        self.known: list[Acquired] = []
        self.flights: dict[int, Any] = {}
        self.heartbeat: Any = None
        self.taken: list[Acquired] = []
        self.chosen: dict[tuple[int, int], int] = {}
        """What the user has decided, by (acquisition, offset), until it is answered."""
        self.answers: dict[tuple[int, int], list[Any]] = {}
        self.losses: set[tuple[int, int]] = set()
        self.sent: dict[tuple[int, int], int] = {}
        self.refused: dict[tuple[int, int], int] = {}
        self.commits: list[Commit] = []
        self.core.subscribe(["t"], now_ms=0)
        self.pump()
        for _ in range(2):
            self.beat()

    # The driver

    @property
    def now_ms(self) -> int:
        return self.cluster.now_ms

    def pump(self) -> None:
        self.core.tick(now_ms=self.now_ms)
        for node, request in self.core.sends(now_ms=self.now_ms):
            if node is None:
                assert self.heartbeat is None, "two heartbeats in flight"
                self.heartbeat = request
            else:
                assert node not in self.flights, "two requests in flight to one broker"
                self.flights[node] = request
                self.note_sent(node)
        if self.core.placement.wants_metadata(now_ms=self.now_ms):
            self.core.placement.metadata_asked()
            self.learn()
        self.collect()

    def note_sent(self, node: int) -> None:
        flight = self.core.sessions[node].in_flight
        assert flight is not None
        for ack in flight.acks:
            if ack.type in TERMINAL and not ack.is_own:
                for offset in range(ack.first, ack.last + 1):
                    key = self.ids[id(ack.acquired)], offset
                    self.sent[key] = self.sent.get(key, 0) + 1
                    assert self.sent[key] <= 1 + self.refused.get(key, 0), f"{ack} is sent again"

    def learn(self) -> None:
        self.core.learn({TOPIC_ID: TopicView("t", dict(self.cluster.leaders))}, now_ms=self.now_ms)

    def collect(self) -> None:
        for one in self.core.holdings.settled:
            for offset in range(one.first, one.last + 1):
                key = self.ids[id(one.acquired)], offset
                self.answers.setdefault(key, []).append((one.type, one.error))
                chosen = self.chosen.pop(key, None)
                if one.type > 0 and one.acquired in self.taken and not self.core.is_closing:
                    assert chosen is not None, f"{key} is answered, and was not acknowledged"
        for loss in self.core.holdings.lost:
            for offset in range(loss.first, loss.last + 1):
                key = self.ids[id(loss.acquired)], offset
                assert key not in self.losses, f"{key} is lost twice"
                self.losses.add(key)
        self.core.holdings.settled, self.core.holdings.lost, self.core.hints = [], [], []
        self.core.errors.clear()

    def beat(self, code: int = 0) -> None:
        request, self.heartbeat = self.heartbeat, None
        if request is None:
            return
        assigned = Assignment(
            topic_partitions=[TopicPartitions(topic_id=TOPIC_ID, partitions=list(range(PARTITIONS)))]
        )
        response = ShareGroupHeartbeatResponse(
            error_code=code,
            member_epoch=2,
            heartbeat_interval_ms=5_000,
            assignment=None if code else assigned,
        )
        self.core.heartbeat_answered(response, now_ms=self.now_ms)
        self.learn()
        self.pump()

    def deliver(self, node: int, *, is_lost: bool = False) -> None:
        """The broker handles the request in flight; its answer arrives, or does not."""
        request = self.flights.pop(node)
        flight = self.core.sessions[node].in_flight
        assert flight is not None
        response = self.cluster.handle(node, request, flight.acks, self.ids)
        if is_lost:
            self.cluster.disconnect(node)
            self.core.failed(node, NETWORK, now_ms=self.now_ms)
        else:
            self.note_refused(flight, response)
            before = set(map(id, self.arrived()))
            self.core.answered(node, response, now_ms=self.now_ms)
            for acquired in self.arrived():
                if id(acquired) not in before:
                    self.ids[id(acquired)] = self.cluster.acquisition_of(acquired.partition, acquired.first)
                    self.known.append(acquired)
        self.pump()

    def note_refused(self, flight: Any, response: Any) -> None:
        codes: dict[int, int] = {}
        for topic in response.responses:
            for one in topic.partitions:
                code = getattr(one, "acknowledge_error_code", None)
                codes[one.partition_index] = one.error_code if code is None else code
        for ack in flight.acks:
            if (response.error_code or codes.get(ack.acquired.partition, 0)) in AGAIN:
                for offset in range(ack.first, ack.last + 1):
                    key = self.ids[id(ack.acquired)], offset
                    self.refused[key] = self.refused.get(key, 0) + 1

    def arrived(self) -> list[Acquired]:
        found = {id(one): one for session in self.core.sessions.values() for one in session.acquired()}
        found |= {id(one): one for arrival in self.core.holdings.buffer for one in arrival.acquired}
        return list(found.values())

    # Users

    @rule()
    def take(self) -> None:
        self.core.came_back(now_ms=self.now_ms)
        self.core.polled(now_ms=self.now_ms)
        for arrival in self.core.take(POLL, now_ms=self.now_ms):
            self.taken += arrival.acquired
        self.pump()

    @rule(wait_ms=st.integers(0, 500))
    def ask(self, wait_ms: int) -> None:
        self.core.polled(now_ms=self.now_ms)
        self.core.ask(self.now_ms + wait_ms)
        self.pump()

    @rule()
    def stop_asking(self) -> None:
        self.core.ask(None)
        self.pump()

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), kind=kinds, is_swept=st.booleans())
    def acknowledge(self, data: st.DataObject, kind: int, is_swept: bool) -> None:
        acquired = data.draw(st.sampled_from(self.taken[-6:]))
        first = data.draw(st.integers(acquired.first, acquired.last))
        last = data.draw(st.integers(first, acquired.last))
        self.decide(acquired, first, last, kind)
        if is_swept:
            self.sweep()

    def decide(self, acquired: Acquired, first: int, last: int, kind: int) -> None:
        with self.core.holdings.lock:
            is_new = acquired.choose_range(first, last, kind)
        if is_new:
            for offset in range(first, last + 1):
                self.chosen[self.ids[id(acquired)], offset] = kind

    @rule()
    def sweep(self) -> None:
        self.core.holdings.sweep(self.taken)
        self.pump()

    @rule()
    def commit(self) -> None:
        self.commits.append(self.core.holdings.commit(self.core.holdings.sweep(self.taken)))
        self.pump()

    @rule()
    def give_back(self) -> None:
        arrivals = self.core.take(1, now_ms=self.now_ms)
        self.core.holdings.give_back(arrivals)
        self.pump()

    # The network, the brokers, and time

    @precondition(lambda self: self.flights)
    @rule(data=st.data(), is_lost=st.booleans())
    def answer(self, data: st.DataObject, is_lost: bool) -> None:
        self.deliver(data.draw(st.sampled_from(sorted(self.flights))), is_lost=is_lost)

    @precondition(lambda self: self.flights)
    @rule(data=st.data())
    def answer_well(self, data: st.DataObject) -> None:
        self.deliver(data.draw(st.sampled_from(sorted(self.flights))))

    @precondition(lambda self: self.flights)
    @rule(data=st.data())
    def lose_request(self, data: st.DataObject) -> None:
        """It never gets there, and the connection ends."""
        node = data.draw(st.sampled_from(sorted(self.flights)))
        del self.flights[node]
        self.cluster.disconnect(node)
        self.core.failed(node, NETWORK, now_ms=self.now_ms)
        self.pump()

    @rule(node=nodes, is_noticed=st.booleans())
    def disconnect_idle(self, node: int, is_noticed: bool) -> None:
        if node not in self.flights and node in self.core.sessions:
            self.cluster.disconnect(node)
            if is_noticed:
                self.core.failed(node, NETWORK, now_ms=self.now_ms)
            self.pump()

    @rule(node=nodes)
    def confuse_session(self, node: int) -> None:
        if node in self.cluster.sessions:
            self.cluster.sessions[node].expected += 7

    @rule(index=partitions, node=nodes, is_known=st.booleans())
    def move_leader(self, index: int, node: int, is_known: bool) -> None:
        self.cluster.move(index, node)
        if is_known:
            self.learn()
            self.pump()

    @rule(index=partitions)
    def expire_early(self, index: int) -> None:
        """The broker's clock is ahead of ours: its locks end before we know."""
        self.cluster.partitions[index].release_all()

    @rule(node=nodes)
    def fail_next(self, node: int) -> None:
        """The next request fails as a whole inside the broker, after its epoch was taken."""
        self.cluster.broken.add(node)

    @rule(index=partitions)
    def fail_or_mend_writes(self, index: int) -> None:
        self.cluster.write_fails ^= {index}

    @rule(index=partitions, count=st.integers(1, 6))
    def produce(self, index: int, count: int) -> None:
        if self.cluster.partitions[index].size < 40:
            self.cluster.partitions[index].produce(count)

    @rule(code=st.sampled_from([0, 0, 14, 15, 16, 25, 110]))
    def answer_heartbeat(self, code: int) -> None:
        self.beat(code)

    @rule()
    def lose_heartbeat(self) -> None:
        if self.heartbeat is not None:
            self.heartbeat = None
            self.core.heartbeat_failed(NETWORK, now_ms=self.now_ms)
            self.pump()

    @rule(milliseconds=st.sampled_from([1, 10, 100, 300, 600, 1_500]))
    def wait(self, milliseconds: int) -> None:
        self.cluster.now_ms += milliseconds
        self.pump()

    @rule()
    def wait_until_due(self) -> None:
        due_ms = self.core.deadline_ms(now_ms=self.now_ms)
        if due_ms is not None:
            self.cluster.now_ms = due_ms
            self.pump()

    # What must hold

    @invariant()
    def buffers_are_bounded(self) -> None:
        if hasattr(self, "core"):
            assert self.core.holdings.buffered <= BUFFERED_MAX
            assert self.core.holdings.buffered == sum(arrival.count for arrival in self.core.holdings.buffer)
            assert self.core.holdings.outstanding >= 0
            if self.capacity:
                assert self.core.holdings.outstanding <= self.capacity

    @invariant()
    def what_is_held_is_counted(self) -> None:
        if hasattr(self, "core"):
            held = sum(
                span.last - span.first + 1
                for acquired in self.known
                for span in acquired.spans()
                if span.mark < 6 or span.mark == 7
            )
            assert self.core.holdings.outstanding == held

    @invariant()
    def what_was_confirmed_was_done(self) -> None:
        if not hasattr(self, "core"):
            return
        done = {(acquisition, offset): kind for acquisition, offset, kind in self.cluster.applied}
        assert len(done) == len(self.cluster.applied), "an acknowledgement took effect twice"
        for key, answers in self.answers.items():
            confirmed = [kind for kind, error in answers if error is None and kind in TERMINAL]
            assert len(confirmed) <= 1, f"{key} is confirmed twice"
            if confirmed:
                assert done.get(key) == confirmed[0], f"{key} is confirmed and was not done"

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        self.cluster.write_fails.clear()
        self.core.ask(None)
        for acquired in self.taken:
            for span in list(acquired.spans()):
                if span.mark in (0, RENEW):
                    self.decide(acquired, span.first, span.last, ACCEPT)
        self.core.holdings.sweep(self.taken)
        self.pump()
        self.drain(lambda: not any(map(_has_acks, self.core.sessions.values())))
        assert not self.chosen, f"never answered: {self.chosen}"
        assert all(commit.is_done for commit in self.commits)
        self.everything_taken_has_an_end()
        self.core.close()
        self.pump()
        self.drain(lambda: self.core.is_closed)
        assert self.core.membership.state is State.OUT
        for acquired in self.known:
            assert not [span for span in acquired.spans() if span.mark in (6, 7)], (
                f"{acquired} is not answered"
            )

    def everything_taken_has_an_end(self) -> None:
        for acquired in self.taken:
            for offset in range(acquired.first, acquired.last + 1):
                key = self.ids[id(acquired)], offset
                ends = [kind for kind, _ in self.answers.get(key, ()) if kind != RENEW]
                assert ends or key in self.losses, f"{key} was taken, and nothing was told of it"
                assert len([kind for kind in ends if kind in TERMINAL]) <= 1, f"{key} is answered twice"

    def drain(self, is_done: Any) -> None:
        for _ in range(300):
            if is_done():
                return
            for node in sorted(self.flights):
                self.deliver(node)
            if self.heartbeat is not None:
                self.beat()
            self.core.holdings.sweep(self.taken)
            self.cluster.now_ms += 50
            self.pump()
        raise AssertionError("it does not drain")


def _has_acks(session: Session) -> bool:
    return bool(session.pending or (session.in_flight is not None and session.in_flight.acks))


TestClientCore = ClientMachine.TestCase
TestClientCore.settings = settings(max_examples=100, stateful_step_count=60)
