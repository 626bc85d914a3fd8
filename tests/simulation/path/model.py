"""The promises of the whole path, from the broker's engine to the application and back.

Each acquisition (one record locked for one member by the broker's engine) is followed through the response that carries
it, the client's `AcquiredRange`, the application's hands and the answer.

1. What the broker takes as an answer to an acquisition is what the application has said of that very delivery. Nothing
   is accepted or rejected that no poll has returned. What the client gives back by itself was never returned, or its
   consumer closes. A gap is reported only where there is no record.
2. Every delivery that a poll has returned and that is answered is told exactly once what became of it; one that is not
   answered is told as lost once, or still held, or given back by closing the consumer. What is confirmed has had its
   effect at the broker, unless the lock had ended there.
3. No record is handed out after its lock has ended, by the clock of its node, counted from the moment when the fetch
   was sent, or the renewal that was confirmed.
4. A worker accepts a record only when its function has returned for that delivery, and rejects it only when its
   function has failed (or may not run any more) and, with a dead-letter topic, a copy of it is in there.
5. A poll that waits asks the brokers for records, as long as its member is in the group and has a session.
6. What is released after a time is kept locked for that time, where nothing fails.
7. In the end, when nothing fails any more, every application ends, and what is left of every record is with the
   broker: settled or available (`models/share.py` drains it).
"""

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace.client.batches import DeliveryBatch
from headrace.client.core.acknowledgements import LATE_TYPE, Lost, Settled
from headrace.client.core.member import MemberCore
from headrace.client.core.ranges import AcquiredRange, RangeState
from headrace.client.core.usual import UsualAcknowledge, UsualFetch
from headrace.client.delivery import Delivery
from headrace.log.partition_log import Appended, PartitionLog
from headrace.share.changes import Acquisition as EngineAcquisition
from headrace.share.changes import AnyChange, Change
from headrace.share.partition import SharePartition
from headrace.share.states import Cause
from headrace.wire.dead_letter import ATTEMPTS
from headrace.wire.errors import ErrorCode
from headrace.wire.records import read_records
from headrace.wire.share_state import ShareKey
from tests.simulation.model import End, Model
from tests.simulation.models.logs import Entry, LogModel, Logs
from tests.simulation.models.share import Share
from tests.simulation.path.wire import SHARE_FETCH, Answered
from tests.simulation.scenario import TOPICS
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.path.node import Node
    from tests.simulation.path.world import PathWorld

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
NAMES = ("gaps", "accepted", "released", "rejected")
EFFECTS = {
    Cause.ACCEPT: ACCEPT,
    Cause.RELEASE: RELEASE,
    Cause.REJECT: REJECT,
    Cause.REJECT_TO_DEAD_LETTERS: REJECT,
    Cause.GAP: GAP,
}
BY_ITSELF = (Cause.CLOSE, Cause.EXPIRE, Cause.EXHAUST, Cause.EXHAUST_TO_DEAD_LETTERS, Cause.TRIM)
DEAD_LETTERS = TOPICS[-1]
"""Where workers write copies of what they give up. It is deleted at times, as every topic is, and has readers."""
LATE_MS = 31_000
"""Closing may take so long, and what is lost meanwhile need not be told."""
WAITED_MS = 900
"""A poll that has waited for so long has had the time to ask for records."""
END_MS = 180_000
"""When nothing fails any more, every application ends within this time."""


class Acquisition:
    """One record, locked once for one member."""

    __slots__ = (
        "acquired", "allowed", "count", "effects", "is_answered", "is_ended", "is_given_back", "is_given_up",
        "is_returned", "key", "late", "lock_until_ms", "lost", "member", "needs_letter", "node", "number", "offset",
        "release_ms", "settled", "topic",
    )  # fmt: skip

    def __init__(self, number: int, key: ShareKey, topic: str, offset: int, member: str, count: int) -> None:
        self.number = number
        self.key = key
        self.topic = topic
        self.offset = offset
        self.member = member
        self.count = count
        self.node: Node | None = None
        """Whose client has it; None before the response has arrived."""
        self.acquired: AcquiredRange | None = None
        """Where the client has it."""
        self.lock_until_ms = 0
        """By the node's clock."""
        self.is_returned = False
        """A poll has returned it."""
        self.is_given_back = False
        """Its consumer closes, or has left: what is not answered goes back."""
        self.is_given_up = False
        """The worker may reject it without a run: it is its last delivery."""
        self.needs_letter = False
        """A worker with a dead-letter topic has it."""
        self.allowed: list[int] = []
        """What the application has said of it, or may want."""
        self.is_answered = False
        """The application has answered it for good, and waits to be told."""
        self.late = 0
        """How many of these had been given when one was told as too late: each later one is told so again."""
        self.release_ms: int | None = None
        """By the node's clock: the application has given it back from then on."""
        self.effects: list[int] = []
        self.is_ended = False
        """The broker has ended the lock by itself."""
        self.settled: list[Any] = []
        self.lost = 0

    def __repr__(self) -> str:
        return (
            f"#{self.number} {self.key.group_id} {self.topic}-{self.key.partition}@{self.offset} of {self.member} "
            f"(delivery {self.count}, returned {self.is_returned}, answered {self.allowed}, effects {self.effects}, "
            f"ended {self.is_ended}, settled {self.settled}, lost {self.lost}, until {self.lock_until_ms})"
        )


class PathLogs(Logs):
    """Workers copy what they give up or put off, at least once, by idempotent producers too."""

    world: "PathWorld"

    def _check_once(self, model: LogModel, entries: list[Entry]) -> None:
        if not model.name.startswith(DEAD_LETTERS):
            copies = self.world.path.copies
            super()._check_once(model, [entry for entry in entries if entry.value not in copies])


class PathShare(Share):
    """The promises of the broker, and each acquisition with what becomes of it there."""

    world: "PathWorld"

    def __init__(self, world: "PathWorld") -> None:
        super().__init__(world)
        self.numbers = 0
        self.held: dict[tuple[ShareKey, int], Acquisition] = {}
        """By record: the last acquisition."""
        self.last: dict[tuple[str, ShareKey, int], Acquisition] = {}
        """The same of each member."""

    def acquired(self, engine: SharePartition, given: dict[str, Any], acquisition: EngineAcquisition) -> None:
        super().acquired(engine, given, acquisition)
        shadow = self.shadows.get(id(engine))
        if shadow is None:
            return
        member = given["member"]
        for one in acquisition.acquired:
            for offset in range(one.first, one.last + 1):
                self.numbers += 1
                made = Acquisition(
                    self.numbers,
                    shadow.key,
                    shadow.loaded.partition.topic.name,
                    offset,
                    member,
                    one.delivery_count,
                )
                self.held[shadow.key, offset] = self.last[member, shadow.key, offset] = made

    def applying(self, engine: SharePartition, changes: Sequence[AnyChange]) -> None:
        super().applying(engine, changes)
        shadow = self.shadows.get(id(engine))
        if shadow is None:
            return
        for change in changes:
            if not isinstance(change, Change):
                continue
            effect = EFFECTS.get(change.cause)
            if effect is None and change.cause not in BY_ITSELF:
                continue
            for offset in range(change.first, change.last + 1):
                one = self.held.get((shadow.key, offset))
                if one is None:
                    continue
                if effect is None:
                    one.is_ended = True
                else:
                    self.world.path.took(one, effect)


class Path(Model):
    world: "PathWorld"

    def __init__(self, world: "PathWorld") -> None:
        super().__init__(world)
        self.members: set[str] = set()
        """Members that are real clients."""
        self.responses: dict[str, deque[Answered]] = {}
        """By node: share responses that have arrived and that its client has not been seen to take in."""
        self.ranges: dict[int, tuple[AcquiredRange, list[Acquisition]]] = {}
        """By the id of the client's range, which is kept alive by this."""
        self.letters: set[tuple[str, str, int, int]] = set()
        """Group, topic, partition and offset of records with a copy in a worker's dead-letter topic."""
        self.copies: set[bytes | None] = set()
        """Values of records that a worker has sent to their own topic again, to be tried later."""

    # Letters

    def appended(self, log: PartitionLog, data: bytes, appended: Appended) -> None:
        if log.topic.startswith(("__", "dlq")):
            return
        for record in read_records(data):
            facts = {name: value for name, value in record.headers if value is not None}
            if "headrace.dlq.cause" in facts:
                topic, group = facts["__dlq.errors.topic"].decode(), facts["__dlq.errors.group"].decode()
                partition, offset = int(facts["__dlq.errors.partition"]), int(facts["__dlq.errors.offset"])
                self.letters.add((group, topic, partition, offset))
            if ATTEMPTS in facts:
                self.copies.add(record.value)

    # The broker takes an answer

    def took(self, one: Acquisition, effect: int) -> None:
        one.effects.append(effect)
        self.world.stats.events[NAMES[effect]] += 1
        if one.member not in self.members:
            return
        if len(one.effects) > 1:
            raise Violation("path: two answers to one delivery", f"{one!r}")
        if effect == GAP:
            self._check_gap(one)
        elif effect == RELEASE:
            if one.is_returned and RELEASE not in one.allowed and not one.is_given_back:
                raise Violation("path: given back what the application holds", f"{one!r}")
            self._check_delay(one)
        elif not one.is_returned:
            raise Violation("path: answered what no poll has returned", f"{effect} for {one!r}")
        elif effect == REJECT and RELEASE in one.allowed and self._has_copy(one):
            return  # it is tried again as another record
        elif effect not in one.allowed and not (effect == REJECT and one.is_given_up):
            raise Violation("path: not the application's answer", f"{effect} for {one!r}")
        elif effect == REJECT and one.needs_letter and not self._has_letter(one):
            raise Violation("path: rejected without a dead letter", f"{one!r}")

    def _check_delay(self, one: Acquisition) -> None:
        """What is to be released later is kept until then, where nothing keeps the client from renewing it."""
        if one.release_ms is None or one.node is None or one.is_given_back or self.world.scenario.has_faults:
            return
        if one.allowed[-1] == RELEASE and one.node.now_ms() < one.release_ms:
            raise Violation("path: released too early", f"{one.node.name} at {one.node.now_ms()}: {one!r}")

    def _has_letter(self, one: Acquisition) -> bool:
        return (one.key.group_id, one.topic, one.key.partition, one.offset) in self.letters

    def _has_copy(self, one: Acquisition) -> bool:
        _, entry = self._entry(one)
        return entry is not None and entry.value in self.copies

    def _entry(self, one: Acquisition) -> tuple[LogModel | None, Entry | None]:
        model = self.world.model(Logs).logs.get((one.key.topic_id, one.key.partition))
        return model, model.entries.get(one.offset) if model is not None else None

    def _check_gap(self, one: Acquisition) -> None:
        model, entry = self._entry(one)
        if (
            model is None
            or entry is None
            or model.is_damaged
            or model.was_compacted
            or entry.is_transactional
        ):
            return
        if entry.marker is None and one.offset >= model.start:
            raise Violation("path: a record reported as a gap", f"{one!r}: {entry}")

    # Responses

    def answered(self, answered: Answered) -> None:
        """The broker writes a share response: what it acquires is what was acquired last for that member."""
        request, response = answered.asked.request, answered.response
        if answered.asked.header.api_key == SHARE_FETCH and response.error_code == ErrorCode.NONE:
            for topic in response.responses:
                for data in topic.partitions:
                    key = ShareKey(request.group_id, topic.topic_id, data.partition_index)
                    if data.acquired_records:
                        self.world.share.told_delivery(
                            request.group_id, request.member_id, topic.topic_id, data
                        )
                    for one in data.acquired_records:
                        for offset in range(one.first_offset, one.last_offset + 1):
                            found = self.world.share.last.get((request.member_id, key, offset))
                            if found is not None:
                                answered.acquired[topic.topic_id, data.partition_index, offset] = found

    def delivered(self, node: "Node", answered: Answered) -> None:
        """The response has arrived at the client's process."""
        self.responses.setdefault(node.name, deque(maxlen=64)).append(answered)

    def responded(self, node: "Node", core: Any, node_id: int, response: Any) -> None:
        """The client's core has taken a response in."""
        if isinstance(response, UsualFetch | UsualAcknowledge):
            response = response.as_message()
        known = self.responses.get(node.name, deque())
        answered = next((one for one in known if one.response == response), None)
        if answered is None:
            raise Violation("path: a response from nowhere", f"{node.name}: {response}")
        known.remove(answered)
        lock_ms = response.acquisition_lock_timeout_ms
        self._renewed(answered, lock_ms)
        for acquired in list(core._holdings.lanes[node_id].acquired()):
            if id(acquired) in self.ranges:
                continue
            ones = []
            for offset in range(acquired.first, acquired.last + 1):
                one = answered.acquired.get((acquired.topic_id, acquired.partition, offset))
                if one is None:
                    raise Violation(
                        "path: held without having been given", f"{node.name}: {acquired} {offset}"
                    )
                one.node, one.acquired = node, acquired
                one.lock_until_ms = answered.asked.sent_ms + lock_ms
                ones.append(one)
            self.ranges[id(acquired)] = acquired, ones

    def _renewed(self, answered: Answered, lock_ms: int) -> None:
        request, response = answered.asked.request, answered.response
        if response.error_code != ErrorCode.NONE:
            return
        is_fetch = answered.asked.header.api_key == SHARE_FETCH
        codes = {
            (topic.topic_id, data.partition_index): data.acknowledge_error_code
            if is_fetch
            else data.error_code
            for topic in response.responses
            for data in topic.partitions
        }
        for topic in request.topics:
            for partition in topic.partitions:
                is_confirmed = codes.get((topic.topic_id, partition.partition_index)) == ErrorCode.NONE
                key = ShareKey(request.group_id, topic.topic_id, partition.partition_index)
                for batch in partition.acknowledgement_batches:
                    types = list(batch.acknowledge_types)
                    for number, offset in enumerate(range(batch.first_offset, batch.last_offset + 1)):
                        if types[number if len(types) > 1 else 0] == RENEW:
                            one = self.world.share.last.get((request.member_id, key, offset))
                            if one is not None and is_confirmed:
                                until_ms = answered.asked.sent_ms + lock_ms
                                one.lock_until_ms = max(one.lock_until_ms, until_ms)
                            elif one is not None:
                                one.release_ms = None  # it cannot be kept: the group may not allow it

    # The client tells

    def of(self, acquired: AcquiredRange, first: int, last: int) -> Iterator[Acquisition]:
        known = self.ranges.get(id(acquired))
        if known is None:
            raise Violation("path: a range from nowhere", f"{acquired}")
        yield from known[1][first - acquired.first : last - acquired.first + 1]

    def of_delivery(self, delivery: Delivery) -> Acquisition:
        (one,) = self.of(delivery._grant.acquired, delivery.offset, delivery.offset)
        return one

    def of_batch(self, batch: DeliveryBatch) -> list[Acquisition]:
        return [
            one
            for acquired, offsets in batch._rows
            for offset in offsets
            for one in self.of(acquired, offset, offset)
        ]

    def returned(self, node: "Node", ones: Sequence[Acquisition]) -> list[Acquisition]:
        """A poll has returned these."""
        for one in ones:
            self.world.stats.events["handed out"] += 1
            if one.lost or any(type != RENEW for type, _ in one.settled):
                raise Violation("path: handed out after its end", f"{node.name} at {node.now_ms()}: {one!r}")
            if node.now_ms() >= one.lock_until_ms:
                raise Violation("path: handed out after its lock", f"{node.name} at {node.now_ms()}: {one!r}")
            one.is_returned = True
        return list(ones)

    def waited(self, node: "Node", core: MemberCore, started_ms: int, asked_ms: int) -> None:
        """A poll has waited from then on, and got nothing. The last fetch was sent at `asked_ms`."""
        if node.now_ms() - started_ms < WAITED_MS or asked_ms >= started_ms or core.is_closing:
            return
        if core.is_paused or (core.settings.max_unacknowledged and core._holdings.outstanding):
            return
        for node_id in core.placement.wanted:
            session = core.sessions.get(node_id)
            if session is not None and session.in_flight is None and session.not_before_ms < started_ms:
                raise Violation(
                    "path: a poll asks for nothing",
                    f"{node.name} from {started_ms} to {node.now_ms()}, the last fetch was sent at {asked_ms}",
                )

    def settled(self, answers: Sequence[Settled]) -> None:
        for answer in answers:
            for one in self.of(answer.acquired, answer.first, answer.last):
                self._settle(one, answer.type, answer.error)

    def _settle(self, one: Acquisition, type: int, error: Any) -> None:
        is_late_again = type == LATE_TYPE and one.settled and len(one.allowed) > one.late
        if type == LATE_TYPE:
            one.late = len(one.allowed)
        if type != RENEW and any(known != RENEW for known, _ in one.settled) and not is_late_again:
            raise Violation("path: told twice", f"{type}, {error} for {one!r}")
        self.world.stats.events["confirmed" if error is None else "refused or unknown"] += 1
        one.settled.append((type, error.code.name if error is not None else None))
        if one.lost and type not in (LATE_TYPE, RENEW):
            raise Violation("path: told of what is lost", f"{type}, {error} for {one!r}")
        if type in (ACCEPT, REJECT) and not one.is_returned:
            raise Violation("path: answered what no poll has returned", f"{type} for {one!r}")
        if error is not None or type not in (ACCEPT, REJECT, RELEASE):
            return
        if type not in one.effects and not one.is_ended and self._is_there(one):
            raise Violation("path: confirmed without effect", f"{type} for {one!r}")

    def _is_there(self, one: Acquisition) -> bool:
        """Its share-partition is the one it was acquired from: not reloaded, reset or deleted since."""
        return self.world.share.held.get((one.key, one.offset)) is one and any(
            shadow.key == one.key and not shadow.loaded._is_closed and one.offset >= shadow.start
            for shadow in self.world.share.shadows.values()
        )

    def lost(self, losses: Sequence[Lost]) -> None:
        for loss in losses:
            for one in self.of(loss.acquired, loss.first, loss.last):
                one.lost += 1
                self.world.stats.events["lost"] += 1
                if one.lost > 1:
                    raise Violation("path: lost twice", f"{one!r}")
                if any(type != RENEW for type, _ in one.settled):
                    raise Violation("path: lost after it was settled", f"{one!r}")

    def before_close(self, core: MemberCore, ones: Sequence[Acquisition]) -> None:
        """What a member knows to be lost it has told."""
        if core._holdings.has_news:
            return
        for one in ones:
            is_lost = one.acquired is not None and one.acquired.state_of(one.offset) is RangeState.LOST
            if is_lost and not one.lost and not one.settled:
                raise Violation("path: lost and not told", f"{one!r}")

    def closed(self, node: "Node", ones: Sequence[Acquisition]) -> None:
        """A consumer is closed: it has told everything that there was to tell."""
        for one in ones:
            if any(type != RENEW for type, _ in one.settled):
                continue
            if one.is_answered:
                raise Violation("path: never told", f"{one!r}")
            if not one.lost and node.now_ms() > one.lock_until_ms + LATE_MS:
                raise Violation("path: lost and not told", f"{node.name} at {node.now_ms()}: {one!r}")

    # Times

    def before_end(self, how: End) -> None:
        """Locks live in the broker's memory."""
        for one in self.world.share.held.values():
            one.is_ended = True

    def at_end(self) -> None:
        world = self.world
        for wire in world.wires:
            if wire.is_hanging:
                wire.cut()
        for node in world.nodes:
            node.go_on()
            node.app.please_stop()
        if not world.wait_for(lambda: not world.nodes, END_MS):
            stuck = [(node.name, [repr(task) for task in node.loop.tasks]) for node in world.nodes]
            raise Violation("path: an application does not end", f"{stuck}")
