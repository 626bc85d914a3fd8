"""The share client's core against a model cluster: every delivery is settled exactly once, or lost and reported.

Method: two brokers, three partitions, one member. Hypothesis decides what the user does (take, take and be interrupted,
answer, release later, send, commit), what the network does (responses, responses that are late or lost after the broker
acted, requests that never arrive), what brokers do (drop sessions, miscount epochs, move partitions, fail to write,
fence the member) and how time goes. The model refuses what no client may do: two requests in flight, wrong epochs,
acknowledgements for an acquisition that is over. The client must never count a lock as longer than the broker does. At
the end the network is kept well, everything is acknowledged, and it must all drain.

`test_a_planted_bug_is_found` breaks the core in ways that it was broken before, and the machine must notice.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from headrace.client.core.acknowledgements import LATE_TYPE, Ack, Commit
from headrace.client.core.hands import Hands
from headrace.client.core.holdings import Holdings
from headrace.client.core.member import Commands, MemberCore, _fetch_codes
from headrace.client.core.membership import MembershipState
from headrace.client.core.placement import TopicView
from headrace.client.core.ranges import UNSETTLED, AcquiredRange, RangeCause, RangeState
from headrace.client.errors import error_for
from headrace.client.settings import ShareSettings
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.share_fetch_response import ShareFetchResponse
from headrace.wire.messages.share_group_heartbeat_response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from tests.property.client_model import AVAILABLE, LOCK_MS, TOPIC_ID, Locked, ModelCluster
from tests.unit.client.core.test_member import Half

NODES, PARTITIONS, POLL = 2, 3, 4
BUFFERED_MAX = 2 * NODES * POLL
ACCEPT, RELEASE, REJECT, RENEW = (RangeState(number) for number in range(1, 5))
TERMINAL = {ACCEPT, RELEASE, REJECT, 0}
AGAIN = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.INVALID_RECORD_STATE,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
}
NETWORK = error_for(ErrorCode.NETWORK_EXCEPTION, "lost")
nodes, partitions = st.integers(0, NODES - 1), st.integers(0, PARTITIONS - 1)
HANDED = bytes([RangeState.HANDED])
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
        self.core = MemberCore(given, "m", capacity=self.capacity, is_ahead=is_ahead, jitter=Half())
        self.ids: dict[int, int] = {}
        self.known: list[AcquiredRange] = []
        self.flights: dict[int, Any] = {}
        self.responses: dict[int, Any] = {}
        """What brokers have responded, and has not arrived yet."""
        self.heartbeat: Any = None
        self.taken: list[AcquiredRange] = []
        self.chosen: dict[tuple[int, int], int] = {}
        """What the user has decided, by (acquisition, offset), until it is answered."""
        self.answers: dict[tuple[int, int], list[Any]] = {}
        self.answered: set[tuple[int, int]] = set()
        """Renewed or acknowledged at some time."""
        self.delayed: dict[tuple[AcquiredRange, int], int] = {}
        """When what the user releases later is due."""
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
        self.pumped_ms = self.now_ms
        commands = self.commands()
        for node, request, _ in commands.sends:
            assert node not in self.flights, "two requests in flight to one broker"
            self.flights[node] = request
            self.note_sent(node)
        if commands.heartbeat is not None:
            assert self.heartbeat is None, "two heartbeats in flight"
            self.heartbeat = commands.heartbeat.request
        self.collect(commands)
        if commands.refresh is not None:
            self.learn()
        self.core.deadline_ms(now_ms=self.now_ms)

    def commands(self) -> Commands:
        return self.core.commands(now_ms=self.now_ms)

    def take_in(self, node: int, response: Any) -> None:
        self.core.responded(node, response, now_ms=self.now_ms)

    def note_sent(self, node: int) -> None:
        for ack in self.core._holdings.lanes[node].in_flight:
            if ack.type in TERMINAL and not ack.is_own:
                for offset in range(ack.first, ack.last + 1):
                    key = self.ids[id(ack.acquired)], offset
                    self.sent[key] = self.sent.get(key, 0) + 1
                    assert self.sent[key] <= 1 + self.refused.get(key, 0), f"{ack} is sent again"

    def learn(self) -> None:
        self.core.learn({TOPIC_ID: TopicView("t", dict(self.cluster.leaders))}, now_ms=self.now_ms)

    def collect(self, commands: Commands) -> None:
        for one in commands.settled:
            for offset in range(one.first, one.last + 1):
                key = self.ids[id(one.acquired)], offset
                self.answers.setdefault(key, []).append((one.type, one.error))
                chosen = self.chosen.get(key)
                if one.type == chosen or one.type == LATE_TYPE:
                    self.chosen.pop(key, None)
                if one.acquired not in self.taken:
                    assert one.type == RELEASE, f"type {one.type} for {key}, which nobody has seen"
                elif one.type > 0 and not self.core.is_closing:
                    known = chosen is not None or key in self.answered
                    assert known, f"{key} is settled, and was not acknowledged"
                    self.answered.add(key)
        for loss in commands.lost:
            for offset in range(loss.first, loss.last + 1):
                key = self.ids[id(loss.acquired)], offset
                assert key not in self.losses, f"{key} is lost twice"
                assert loss.acquired in self.taken, f"{key} is lost, and nobody had it"
                self.losses.add(key)
                self.chosen.pop(key, None)

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
        self.core.heartbeat_responded(response, now_ms=self.now_ms)
        self.learn()
        self.pump()

    def handle(self, node: int) -> None:
        """The broker handles the request in flight; its response is on the way."""
        request = self.flights[node]
        meant = list(self.core._holdings.lanes[node].in_flight)
        response = self.cluster.handle(node, request, meant, self.ids)
        acquisitions = {
            (one.partition_index, each.first_offset): self.cluster.acquisition_of(
                one.partition_index, each.first_offset
            )
            for topic in response.responses
            for one in topic.partitions
            for each in getattr(one, "acquired_records", ())
        }
        self.responses[node] = response, acquisitions

    def deliver(self, node: int, *, is_lost: bool = False) -> None:
        """The response arrives, or does not."""
        if node not in self.responses:
            self.handle(node)
        response, acquisitions = self.responses.pop(node)
        del self.flights[node]
        if is_lost:
            self.cluster.disconnect(node)
            self.core.failed(node, NETWORK, now_ms=self.now_ms)
        else:
            self.note_refused(list(self.core._holdings.lanes[node].in_flight), response)
            before = set(map(id, self.arrived()))
            self.take_in(node, response)
            for acquired in self.arrived():
                if id(acquired) not in before:
                    self.ids[id(acquired)] = acquisitions[acquired.partition, acquired.first]
                    self.known.append(acquired)
        self.pump()

    def note_refused(self, acks: list[Ack], response: Any) -> None:
        codes: dict[int, int] = {}
        for topic in response.responses:
            for one in topic.partitions:
                code = getattr(one, "acknowledge_error_code", None)
                codes[one.partition_index] = one.error_code if code is None else code
        for ack in acks:
            if (response.error_code or codes.get(ack.acquired.partition, 0)) in AGAIN:
                for offset in range(ack.first, ack.last + 1):
                    key = self.ids[id(ack.acquired)], offset
                    self.refused[key] = self.refused.get(key, 0) + 1

    def arrived(self) -> list[AcquiredRange]:
        found = {
            id(one): one for node in self.core.sessions for one in self.core._holdings.lanes[node].acquired()
        }
        found |= {id(one): one for arrival in self.core.hands._buffer for one in arrival.acquired}
        return list(found.values())

    # Users

    @rule()
    def take(self) -> None:
        self.core.poll_began(now_ms=self.now_ms)
        for arrival in self.core.take(POLL, now_ms=self.now_ms):
            for acquired in arrival.acquired:
                self.hand_out(acquired)
        self.core.hands.decoded()
        self.pump()

    def hand_out(self, acquired: AcquiredRange) -> None:
        self.core.hands.hand_out(acquired)
        assert acquired not in self.taken, f"{acquired} is handed out twice"
        for span in acquired.spans(of=HANDED):
            for offset in range(span.first, span.last + 1):
                key = self.ids[id(acquired)], offset
                assert self.now_ms < self.cluster.lock_ends[key], f"{key} is handed out after its lock"
        self.taken.append(acquired)

    @rule()
    def take_and_be_interrupted(self) -> None:
        """By a signal handler that raises: nobody has seen the records."""
        self.core.poll_began(now_ms=self.now_ms)
        self.core.take(POLL, now_ms=self.now_ms)
        self.pump()

    @rule(wait_ms=st.integers(0, 500))
    def ask(self, wait_ms: int) -> None:
        self.core.poll_waits(self.now_ms + wait_ms, now_ms=self.now_ms)
        self.pump()

    @rule()
    def stop_asking(self) -> None:
        if self.core._asked_until_ms is not None:
            self.core.poll_ended(self.core._asked_until_ms)
        self.pump()

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), kind=kinds, is_sent=st.booleans())
    def acknowledge(self, data: st.DataObject, kind: int, is_sent: bool) -> None:
        acquired = data.draw(st.sampled_from(self.taken[-6:]))
        first = data.draw(st.integers(acquired.first, acquired.last))
        last = data.draw(st.integers(first, acquired.last))
        self.decide(acquired, first, last, kind)
        if is_sent:
            self.send()

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), after_ms=st.sampled_from([1, 400, LOCK_MS, 5 * LOCK_MS]))
    def release_later(self, data: st.DataObject, after_ms: int) -> None:
        acquired = data.draw(st.sampled_from(self.taken[-6:]))
        offset = data.draw(st.integers(acquired.first, acquired.last))
        if self.core.hands.release_later(acquired, offset, self.now_ms + after_ms):
            self.chosen[self.ids[id(acquired)], offset] = RELEASE
            self.delayed[acquired, offset] = self.now_ms + after_ms
        self.pump()

    @rule(index=partitions, kind=kinds, is_second=st.booleans())
    def acknowledge_late_and_poll(self, index: int, kind: int, is_second: bool) -> None:
        """Two acquisitions of a partition are answered with the next fetch, but one of the locks is just over."""
        for _ in range(2):
            self.produce(index, 1)
            self.exchange()
            self.take()
        ours = [one for one in self.taken if one.partition == index and one.count_of(HANDED)][-2:]
        if len(ours) < 2:
            return
        over = ours[is_second]
        part = self.cluster.partitions[index]
        for offset in range(over.first, over.last + 1):
            if isinstance(part.states[offset], Locked):
                part.states[offset] = AVAILABLE
        for acquired in ours:
            self.decide(acquired, acquired.first, acquired.last, kind if acquired is over else ACCEPT)
        self.exchange()
        self.pump()

    @rule(index=partitions, milliseconds=st.sampled_from([100, 600, LOCK_MS - 1, LOCK_MS, 1_500]))
    def poll_and_get_a_late_response(self, index: int, milliseconds: int) -> None:
        """As of a process that stood still meanwhile."""
        self.produce(index, 1)
        self.core.poll_began(now_ms=self.now_ms)
        self.core.poll_waits(self.now_ms + 500, now_ms=self.now_ms)
        self.pump()
        for node in sorted(self.flights.keys() - self.responses.keys()):
            self.handle(node)
        self.cluster.now_ms += milliseconds
        for node in sorted(self.responses):
            self.deliver(node)

    def exchange(self) -> None:
        """A poll waits, and what it has the member send is answered."""
        self.core.poll_began(now_ms=self.now_ms)
        self.core.poll_waits(self.now_ms + 500, now_ms=self.now_ms)
        self.pump()
        for node in sorted(self.flights):
            self.deliver(node)

    def decide(self, acquired: AcquiredRange, first: int, last: int, kind: int) -> None:
        if self.core.hands.answer_all(acquired, first, last, kind):
            for offset in range(first, last + 1):
                self.chosen[self.ids[id(acquired)], offset] = kind

    @rule()
    def send(self) -> None:
        self.core.send_answers()
        self.pump()

    @rule()
    def commit(self) -> None:
        self.commits.append(self.core.commit())
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

    @precondition(lambda self: self.flights.keys() - self.responses.keys())
    @rule(data=st.data())
    def handle_and_respond_late(self, data: st.DataObject) -> None:
        """The response is on its way, perhaps for longer than a lock."""
        self.handle(data.draw(st.sampled_from(sorted(self.flights.keys() - self.responses.keys()))))

    @precondition(lambda self: self.flights)
    @rule(data=st.data())
    def lose_request(self, data: st.DataObject) -> None:
        """It never gets there, and the connection ends."""
        node = data.draw(st.sampled_from(sorted(self.flights)))
        del self.flights[node]
        self.responses.pop(node, None)
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
            assert self.core.hands.buffered <= BUFFERED_MAX
            assert self.core._holdings.outstanding >= 0
            if self.capacity:
                assert self.core._holdings.outstanding <= self.capacity

    @invariant()
    def nothing_is_kept_past_its_time(self) -> None:
        if hasattr(self, "core"):
            for (acquired, offset), due_ms in self.delayed.items():
                is_kept = acquired.state_of(offset) is RangeState.DELAYED
                assert not is_kept or self.pumped_ms < due_ms, f"{acquired} {offset} was due at {due_ms}"

    @invariant()
    def what_is_held_is_counted(self) -> None:
        if hasattr(self, "core"):
            held = sum(acquired.count_of(UNSETTLED) for acquired in self.known)
            assert self.core._holdings.outstanding == held

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

    @invariant()
    def no_lock_is_counted_for_longer_than_the_broker_does(self) -> None:
        if hasattr(self, "core"):
            for acquired in self.known:
                for span in acquired.spans(of=UNSETTLED):
                    for offset in range(span.first, span.last + 1):
                        key = self.ids[id(acquired)], offset
                        until_ms = acquired.lock_until_ms_of(offset)
                        assert until_ms <= self.cluster.lock_ends[key], f"{key} until {until_ms}"

    def teardown(self) -> None:
        if not hasattr(self, "core"):
            return
        self.cluster.write_fails.clear()
        self.take()
        self.stop_asking()
        self.answer_all()
        self.drain(lambda: not self.has_acks() and not self.is_delaying())
        assert not self.chosen, f"never settled: {self.chosen}"
        assert all(commit.is_done for commit in self.commits)
        self.everything_taken_has_an_end()
        self.core.close(self.now_ms + 10_000, now_ms=self.now_ms)
        self.pump()
        self.drain(lambda: self.core.is_closed)
        assert self.core.membership.state is MembershipState.OUT
        on_the_way = bytes(set(UNSETTLED) - set(range(RangeState.SENT))) + bytes([RangeState.SENT])
        for acquired in self.known:
            assert not acquired.count_of(on_the_way), f"{acquired} is not settled"

    def answer_all(self) -> None:
        renewals = bytes([RangeState.HANDED, RENEW, RangeState.RENEWING])
        for acquired in self.taken:
            for span in list(acquired.spans(of=renewals)):
                self.decide(acquired, span.first, span.last, ACCEPT)
        self.send()

    def has_acks(self) -> bool:
        holdings = self.core._holdings
        return any(
            holdings.lanes[node].all_waiting() or holdings.lanes[node].in_flight
            for node in self.core.sessions
        )

    def is_delaying(self) -> bool:
        kept = (RangeState.DELAYED, RangeState.RENEWING_DELAYED)
        return any(acquired.state_of(offset) in kept for acquired, offset in self.delayed)

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
            self.core.send_answers()
            self.cluster.now_ms += 50
            self.pump()
        raise AssertionError("it does not drain")


TestClientCore = ClientMachine.TestCase
TestClientCore.settings = settings(max_examples=100, stateful_step_count=60)


def _records_first(core: MemberCore, session: Any, response: Any, now_ms: int) -> None:
    """D1: what a response delivers arrives before the acknowledgements in it are settled."""
    sent = session.accepted(now_ms=now_ms)
    if isinstance(response, ShareFetchResponse):
        core._take_fetch(session, sent, response, now_ms)
        core._settle_acks(session, sent, _fetch_codes(response), now_ms)
    else:
        codes = {
            (topic.topic_id, one.partition_index): (one.error_code, None)
            for topic in response.responses
            for one in topic.partitions
        }
        core._settle_acks(session, sent, codes, now_ms)


def _counted_from_receipt(holdings: Holdings, *arguments: Any, now_ms: int, **keywords: Any) -> Any:
    """D2: a lock starts when its response arrives."""
    return _arrive(holdings, *arguments, **{**keywords, "now_ms": now_ms, "sent_ms": now_ms})


def _seen_too_early(hands: Hands, records_max: int, *, now_ms: int) -> Any:
    """D3: what a poll takes counts as handed out, though the poll is interrupted."""
    taken = _take(hands, records_max, now_ms=now_ms)
    for arrival in taken:
        for acquired in arrival.acquired:
            acquired.apply(RangeCause.HAND_OUT)
    hands.decoded()
    return taken


def _accepted_when_interrupted(hands: Hands) -> None:
    """D3: the next poll accepts what an interrupted one has taken."""
    for arrival in hands._taken:
        for acquired in arrival.acquired:
            acquired.apply(RangeCause.HAND_OUT)
            hands.answer_all(acquired, acquired.first, acquired.last, ACCEPT)
    hands.decoded()


_arrive, _take = Holdings.arrive, Hands.take
PLANTED: dict[str, tuple[Any, str, Any]] = {
    "D1": (MemberCore, "_accepted", _records_first),
    "D2": (Holdings, "arrive", _counted_from_receipt),
    "D3-lost": (Hands, "take", _seen_too_early),
    "D3-accepted": (Hands, "put_back", _accepted_when_interrupted),
}


@pytest.mark.parametrize("bug", list(PLANTED))
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, broken = PLANTED[bug]
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises((AssertionError, ExceptionGroup)):
        run_state_machine_as_test(  # type: ignore[no-untyped-call]
            ClientMachine,
            settings=settings(
                max_examples=500,
                stateful_step_count=60,
                database=None,
                phases=[Phase.generate],
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
                deadline=None,
            ),
        )
