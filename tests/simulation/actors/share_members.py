"""Members of share groups: they join, fetch, answer for what they got, and do all of it wrong at times."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.wire.errors import ErrorCode
from headrace.wire.messages import share_acknowledge_request as acknowledging
from headrace.wire.messages import share_fetch_request as fetching
from headrace.wire.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.records import NewRecord, build_batch
from tests.simulation.actor import Actor, Ask, Life
from tests.simulation.actors.producers import ALL, KEYS, Batch, PlainProducer
from tests.simulation.network import Link, Pending
from tests.simulation.scenario import PARTITIONS_MAX, TOPICS

if TYPE_CHECKING:
    from tests.simulation.world import World

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
Place = tuple[bytes, int]
AckBatches = list[tuple[int, int, list[int]]]


class Sent(NamedTuple):
    """Answers that went out for one partition."""

    place: Place
    answers: dict[int, int]
    is_plain: bool
    """Each offset once, and no type that the request does not allow: what was taken is known."""
    generation: int | None


class BulkProducer(PlainProducer):
    """Fills the window of a share-partition: most of what it writes goes to the same one."""

    def __init__(self, world: "World", name: str) -> None:
        self._largest = world.rng.choice((20, 90))
        self._topic = world.rng.choice(world.scenario.topics)
        super().__init__(world, name)

    def choose_partition(self) -> tuple[str, bytes, int] | None:
        topic_id = self.logs.topics.get(self._topic)
        if topic_id is None or self.rng.random() < 0.2:
            return super().choose_partition()
        return self._topic, topic_id, 0

    def records(self) -> list[NewRecord]:
        count = self.rng.choice((1, self._largest // 2, self._largest, self._largest))
        number = next(self._numbers)
        now_ms = self.world.clock.wall_ms()
        return [
            NewRecord(self.rng.choice(KEYS), f"{self.name}.{number}.{index}".encode(), (), now_ms)
            for index in range(count)
        ]


class GrowingProducer(PlainProducer):
    """Adds a partition to a topic that share groups read, and writes to it before they know of it."""

    def live(self) -> Life:
        while True:
            read = {topic_id for _, topic_id in self.share.counts}
            candidates = [
                (name, topic_id, count)
                for name, topic_id in self.logs.topics.items()
                if topic_id in read and 0 < (count := self.logs.partitions.get(topic_id, 0)) < PARTITIONS_MAX
            ]
            if not candidates or self.rng.random() < 0.5:
                yield None
                continue
            name, topic_id, count = self.rng.choice(candidates)
            wanted = CreatePartitionsTopic(name=name, count=count + 1, assignments=None)
            yield from self.ask(CreatePartitionsRequest(topics=[wanted]), 3)
            for _ in range(self.rng.choice((1, 2, 3))):
                records = self.records()
                values = [record.value for record in records if record.value is not None]
                batch = Batch(name, topic_id, count, values, build_batch(records), len(records))
                pending = self.produce(batch, ALL)
                self.world.transmit(self._link)
                yield pending


class ShareMember(Actor):
    def __init__(self, world: "World", name: str) -> None:
        self.group_id = world.rng.choice(world.scenario.share_groups)
        self.member_id = f"{name}.0"
        self._names = 0
        self.member_epoch = 0
        self.assigned: list[Place] = []
        self.epoch = 0
        """Of the session's next request; 0: none is open, as far as it knows."""
        self.in_session: set[Place] = set()
        self.held: dict[Place, dict[int, int]] = {}
        """Offsets and delivery counts of what it was given and has not answered for."""
        self.past: dict[Place, dict[int, int]] = {}
        """What it had once."""
        self.opener: Link | None = None
        self.until_ms = 0
        """When the first of its locks ends."""
        self.is_loner = world.rng.random() < world.scenario.loners
        """Reads without being a member: the broker does not mind, and the group stays empty."""
        self.answers_often = world.rng.random() < 0.7
        self._habits = [world.rng.choice((0, 1, 1, 2)) for _ in ACTIONS]
        super().__init__(world, name)

    def live(self) -> Life:
        actions = list(ACTIONS.values())
        weights = [weight * habit for (_, weight), habit in zip(actions, self._habits, strict=True)]
        weights[0] = max(weights[0], 5)
        weights[1] = max(weights[1], 10)
        weights[2] = max(weights[2], 5)
        while True:
            if self.opener is None or not self.opener.is_open:
                self.forget_session()
            if self.member_epoch == 0 and not self.is_loner and self.rng.random() < 0.7:
                yield from self.heartbeat()
                continue
            if self.held and self.rng.random() < (0.4 if self.answers_often else 0.05):
                yield from self.acknowledge()
                continue
            action = self.rng.choices(actions, weights)[0][0]
            yield from action(self)

    def step(self) -> None:
        """What is answered at once need not wait for another step."""
        for _ in range(self.rng.choice((1, 2, 4, 8))):
            super().step()
            if self._waits_for is None or not self.is_ready:
                return

    def forget_session(self) -> None:
        self.epoch = 0
        self.in_session.clear()
        for place, held in self.held.items():
            self.past.setdefault(place, {}).update(held)
        self.held.clear()
        self.opener = None

    # The group

    def heartbeat(self) -> Ask:
        rng = self.rng
        names: list[str] | None = None
        epoch = self.member_epoch
        if epoch == 0 or rng.random() < 0.1:
            names = rng.sample(TOPICS, rng.choice((1, 2, 3, 3)))
        if rng.random() < 0.03:
            epoch = max(0, epoch + rng.choice((-1, 1, 5)))
        request = ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=epoch, subscribed_topic_names=names
        )

        def answered(pending: Pending) -> None:
            response = pending.response
            if response.error_code != ErrorCode.NONE:
                self.member_epoch = 0
                return
            self.member_epoch = response.member_epoch
            if response.assignment is not None:
                assigned = [
                    (one.topic_id, list(one.partitions)) for one in response.assignment.topic_partitions
                ]
                self.assigned = [(topic_id, index) for topic_id, indexes in assigned for index in indexes]
                self.share.told_assignment(self.group_id, assigned)

        yield from self.ask(request, 1, answered=answered)

    def leave(self) -> Ask:
        """Properly; with or without closing the session."""
        if self.epoch and self.rng.random() < 0.5:
            yield from self.close()
        request = ShareGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=-1
        )
        yield from self.ask(request, 1)
        self.member_epoch = 0
        if self.rng.random() < 0.5:
            self.become_another()

    def become_another(self) -> None:
        self._names += 1
        self.member_id = f"{self.name}.{self._names}"
        self.member_epoch = 0
        self.assigned = []
        self.forget_session()
        if self.rng.random() < 0.3:
            self.group_id = self.rng.choice(self.world.scenario.share_groups)

    def die(self) -> Ask:
        """Without a word."""
        if self._link is not None:
            self._link.cut()
        if self.rng.random() < 0.5:
            self.become_another()
        yield None

    def stand_still(self) -> Ask:
        for _ in range(self.rng.choice((1, 3, 10))):
            yield None

    # Fetching

    def wanted(self) -> set[Place]:
        """What the session shall hold: mostly what the group says."""
        rng = self.rng
        wanted = set(self.assigned)
        if self.world.scenario.is_patient:  # what is refused would be answered at once
            if self.is_loner:
                wanted |= {
                    (topic_id, index)
                    for topic_id in self.logs.topics.values()
                    for index in range(self.logs.partitions.get(topic_id, 0))
                }
            return wanted
        if self.is_loner or rng.random() < 0.2:
            wanted |= {(topic_id, index) for topic_id in self.logs.topics.values() for index in range(3)}
        if rng.random() < 0.05:
            wanted.add((b"\x01" * 16, 0))
        if wanted and rng.random() < 0.1:
            wanted.discard(rng.choice(sorted(wanted)))
        return wanted

    def fetch(self) -> Ask:
        rng = self.rng
        epoch, wanted = self.epoch, self.wanted()
        if rng.random() < 0.03:
            epoch = rng.choice((0, epoch + 1, max(0, epoch - 1)))
        before = self.in_session if epoch else set()
        sent: list[Sent] = []
        topics: dict[Place, AckBatches] = {place: [] for place in sorted(wanted - before)}
        is_renewing = False
        if epoch and self.held and rng.random() < 0.5:
            is_renewing = rng.random() < 0.15
            for place, batches, note in self.answers(is_renewing=is_renewing):
                topics[place] = batches
                sent.append(note)
        forgotten = sorted(before - wanted) if rng.random() < 0.8 else []
        is_patient = self.world.scenario.is_patient and not is_renewing
        wait_ms = 0 if is_renewing else rng.choice((0, 0, 100, 500, 5_000, 5_000))
        if is_patient:
            wait_ms = rng.choice((5_000, 30_000))
        request = fetching.ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=epoch,
            max_wait_ms=wait_ms,
            min_bytes=1 if is_patient else 0 if is_renewing else rng.choice((0, 1, 1, 300)),
            max_bytes=0 if is_renewing else rng.choice((1, 1_000, 1 << 20)),
            max_records=0 if is_renewing else rng.choice((0, 1, 2, 7, 500)),
            batch_size=rng.choice((1, 3, 500)),
            share_acquire_mode=rng.choice((0, 0, 1, 1, 1)) if rng.random() < 0.99 else 7,
            is_renew_ack=is_renewing,
            topics=[
                fetching.FetchTopic(
                    topic_id=topic_id,
                    partitions=[
                        fetching.FetchPartition(
                            partition_index=index,
                            acknowledgement_batches=[
                                fetching.AcknowledgementBatch(
                                    first_offset=a, last_offset=b, acknowledge_types=types
                                )
                                for a, b, types in batches
                            ],
                        )
                    ],
                )
                for (topic_id, index), batches in topics.items()
            ],
            forgotten_topics_data=[
                fetching.ForgottenTopic(topic_id=topic_id, partitions=[index])
                for topic_id, index in forgotten
            ],
        )
        pending = self.post(request, 2, timeout_ms=wait_ms + 1_000)
        link = self._link
        assert link is not None

        def answered(pending: Pending) -> None:
            response = pending.response
            if response.error_code in SESSION_LOST:
                self.forget_session()
                return
            if epoch == 0 and response.error_code == ErrorCode.NONE:
                self.in_session.clear()
                self.opener = link
            self.epoch = epoch + 1
            if response.error_code != ErrorCode.NONE:
                return
            self.in_session |= wanted
            self.in_session -= set(forgotten)
            self.take(response, sent)

        pending.on_answer = answered
        if rng.random() < 0.03:
            self.heartbeat_too()
        self.world.transmit(link)
        yield pending

    def heartbeat_too(self) -> None:
        """On the same connection, right behind."""
        self.post(
            ShareGroupHeartbeatRequest(
                group_id=self.group_id, member_id=self.member_id, member_epoch=self.member_epoch
            ),
            1,
        )

    def take(self, response: Any, sent: Iterable[Sent]) -> None:
        refusals: dict[Place, int] = {}
        for topic in response.responses:
            for data in topic.partitions:
                place = (topic.topic_id, data.partition_index)
                refusals[place] = data.acknowledge_error_code
                if data.error_code == ErrorCode.NONE:
                    got = self.share.told_delivery(self.group_id, self.member_id, topic.topic_id, data)
                    if got:
                        self.held.setdefault(place, {}).update(got)
                        self.until_ms = self.world.clock.monotonic_ms() + response.acquisition_lock_timeout_ms
        for note in sent:
            self.settled(note, refusals.get(note.place))

    # Answering

    def answers(self, *, is_renewing: bool) -> Iterable[tuple[Place, AckBatches, Sent]]:
        """For some of what it holds; at times for what it does not hold, or never did."""
        rng = self.rng
        places = sorted(self.held)
        if rng.random() < 0.1:
            places = sorted({*self.held, *self.past})
        mood = rng.choice(PATIENT_MOODS if self.world.scenario.is_patient else MOODS)
        for place in places:
            if rng.random() < 0.3:
                continue
            held = self.held.get(place, {})
            offsets = sorted(held)
            if rng.random() < 0.05:
                offsets = sorted(
                    {*offsets, *self.share.held_by_others(self.group_id, self.member_id, *place)}
                )
            if rng.random() < 0.12:
                offsets = sorted({*held, *self.past.get(place, {})})  # late, doubled
            if rng.random() < 0.02:
                offsets = sorted({*offsets, *range(rng.randint(0, 20), rng.randint(0, 30))})
            offsets = self.some_of(offsets)
            if not offsets:
                continue
            answers = {offset: self.choose(mood, is_renewing) for offset in offsets}
            batches = self.batches_of(answers)
            is_plain = True
            if rng.random() < 0.02:
                is_plain = False
                batches = self.spoil(batches)
            generation = self.share.generation(self.group_id, *place)
            yield place, batches, Sent(place, answers, is_plain, generation)

    def some_of(self, offsets: list[int]) -> list[int]:
        match self.rng.choice(("all", "all", "first", "last", "some")):
            case "first":
                return offsets[: self.rng.randint(0, len(offsets))]
            case "last":
                return offsets[self.rng.randint(0, len(offsets)) :]
            case "some":
                return [offset for offset in offsets if self.rng.random() < 0.5]
        return offsets

    def choose(self, mood: tuple[int, ...], is_renewing: bool) -> int:
        if is_renewing and self.rng.random() < 0.7:
            return RENEW
        if self.rng.random() < 0.005:
            return RENEW
        return self.rng.choice(mood)

    def batches_of(self, answers: dict[int, int]) -> AckBatches:
        """Neighbors in one batch, with one type or one for each; or each alone."""
        runs: list[list[int]] = []
        style = self.rng.choice(("array", "uniform", "single"))
        for offset in sorted(answers):
            run = runs[-1] if runs else None
            if (
                run is not None
                and style != "single"
                and run[-1] == offset - 1
                and (style == "array" or answers[run[-1]] == answers[offset])
            ):
                run.append(offset)
            else:
                runs.append([offset])
        batches: AckBatches = []
        for run in runs:
            types = [answers[offset] for offset in run]
            if len(set(types)) == 1 and self.rng.random() < 0.7:
                types = types[:1]
            batches.append((run[0], run[-1], types))
        return batches

    def spoil(self, batches: AckBatches) -> AckBatches:
        first, last, types = batches[-1]
        match self.rng.randrange(6):
            case 0:
                return [*batches, (last, last, types[-1:])]
            case 1:
                return [*batches[:-1], (last, first - 1, types)]
            case 2:
                return [*batches[:-1], (first, last, [])]
            case 3:
                return [*batches[:-1], (first, last, [*types, 1, 1])]
            case 4:
                return [*batches[:-1], (first, last, [9])]
        return [*batches, (first, last, types)]

    def settled(self, note: Sent, refused: int | None) -> None:
        """What became of answers."""
        held = self.held.get(note.place, {})
        for offset, answer in note.answers.items():
            if answer != RENEW and offset in held:
                self.past.setdefault(note.place, {})[offset] = held.pop(offset)
        if not held:
            self.held.pop(note.place, None)
        if refused == ErrorCode.NONE and note.is_plain:
            self.share.told_answers(self.group_id, *note.place, note.answers, note.generation)

    def acknowledge(self) -> Ask:
        """At times just when the lock ends, before its alarm has been heard."""
        left_ms = self.until_ms - self.world.clock.monotonic_ms()
        if 0 < left_ms <= 30_000 and self.rng.random() < 0.05:
            self.world.advance(left_ms - 1)
            self.world.clock.advance(1)
        yield from self.send_answers(self.epoch)

    def send_answers(self, epoch: int) -> Ask:
        rng = self.rng
        if epoch > 0 and rng.random() < 0.03:
            epoch = rng.choice((0, epoch + 1, max(0, epoch - 1)))
        is_renewing = rng.random() < 0.2
        listed = list(self.answers(is_renewing=is_renewing))
        if not listed and epoch != -1:
            yield None
            return
        request = acknowledging.ShareAcknowledgeRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=epoch,
            is_renew_ack=is_renewing,
            topics=[
                acknowledging.AcknowledgeTopic(
                    topic_id=place[0],
                    partitions=[
                        acknowledging.AcknowledgePartition(
                            partition_index=place[1],
                            acknowledgement_batches=[
                                acknowledging.AcknowledgementBatch(
                                    first_offset=first, last_offset=last, acknowledge_types=types
                                )
                                for first, last, types in batches
                            ],
                        )
                    ],
                )
                for place, batches, _ in listed
            ],
        )

        def answered(pending: Pending) -> None:
            response = pending.response
            if response.error_code in SESSION_LOST or epoch == -1:
                self.forget_session()
            else:
                self.epoch = epoch + 1
            if response.error_code != ErrorCode.NONE:
                return
            refusals = {
                (topic.topic_id, data.partition_index): data.error_code
                for topic in response.responses
                for data in topic.partitions
            }
            for _, _, note in listed:
                self.settled(note, refusals.get(note.place))

        yield from self.ask(request, 2, timeout_ms=1_000, answered=answered)

    def close(self) -> Ask:
        """With last answers, by either request."""
        if self.rng.random() < 0.5:
            yield from self.send_answers(-1)
            return
        sent = list(self.answers(is_renewing=False))
        request = fetching.ShareFetchRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            share_session_epoch=-1,
            topics=[
                fetching.FetchTopic(
                    topic_id=place[0],
                    partitions=[
                        fetching.FetchPartition(
                            partition_index=place[1],
                            acknowledgement_batches=[
                                fetching.AcknowledgementBatch(
                                    first_offset=a, last_offset=b, acknowledge_types=types
                                )
                                for a, b, types in batches
                            ],
                        )
                    ],
                )
                for place, batches, _ in sent
            ],
        )

        def answered(pending: Pending) -> None:
            if pending.response.error_code == ErrorCode.NONE:
                self.take(pending.response, [note for _, _, note in sent])
            self.forget_session()

        yield from self.ask(request, 2, timeout_ms=1_000, answered=answered)

    def move(self) -> Ask:
        """The session goes on over another connection; the first one stays open a while, or is cut."""
        if self._link is not None and self.rng.random() < 0.5:
            self._link.cut()
        self._link = None
        yield None


SESSION_LOST = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
MOODS: tuple[tuple[int, ...], ...] = (
    (ACCEPT,),
    (ACCEPT,),
    (RELEASE,),
    (ACCEPT, RELEASE, REJECT, GAP),
    (ACCEPT, ACCEPT, RELEASE),
    (REJECT, RELEASE),
)
PATIENT_MOODS = (*MOODS, (RELEASE,), (RELEASE,))
ACTIONS: dict[str, tuple[Callable[[ShareMember], Ask], int]] = {
    "heartbeat": (ShareMember.heartbeat, 20),
    "fetch": (ShareMember.fetch, 45),
    "acknowledge": (ShareMember.acknowledge, 25),
    "close": (ShareMember.close, 3),
    "leave": (ShareMember.leave, 2),
    "die": (ShareMember.die, 2),
    "stand still": (ShareMember.stand_still, 4),
    "move": (ShareMember.move, 1),
}
