"""Members of consumer groups, of both protocols: they join, read what they were given, commit, leave, or vanish."""

import json
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headrace.wire.codec import encode
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from headrace.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from headrace.wire.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.simulation.actor import Actor, Ask, Life
from tests.simulation.network import Pending
from tests.simulation.scenario import CLASSIC_GROUP, CONSUMER_GROUP, TOPICS

if TYPE_CHECKING:
    from tests.simulation.world import World

Partition = tuple[bytes, int]
SESSION_MS = 10_000
REBALANCE_MS = 5_000


class Consumer(Actor):
    group_id: str

    def __init__(self, world: "World", name: str) -> None:
        self.subscription = sorted(world.rng.sample(TOPICS, world.rng.randint(1, len(TOPICS))))
        self.member_id = ""
        self.epoch = 0
        """Member epoch, or generation."""
        self.assigned: set[Partition] = set()
        super().__init__(world, name)

    def topic_name(self, topic_id: bytes) -> str | None:
        return next((name for name, known in self.logs.topics.items() if known == topic_id), None)

    def commit(self) -> Ask:
        """Of one partition that it was given: some offset that exists. False: it is not a member any more."""
        if not self.assigned:
            yield None
            return True
        topic_id, index = self.rng.choice(sorted(self.assigned))
        topic = self.topic_name(topic_id)
        model = self.logs.logs.get((topic_id, index))
        if topic is None or model is None:
            yield None
            return True
        place = (self.group_id, topic, index)
        offset = self.rng.choice((model.end, self.rng.randint(model.start, model.end)))
        version = self.rng.choice((8, 9, 10))
        one = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.epoch,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=topic, topic_id=topic_id, partitions=[one])],
        )
        sent = self.groups.sent(place, offset)

        def answered(pending: Pending) -> None:
            self.groups.answered(place, sent, pending.response.topics[0].partitions[0].error_code)

        response = yield from self.ask(request, version, answered=answered)
        if response is None:
            self.groups.lost(sent)
            return True
        return response.topics[0].partitions[0].error_code == ErrorCode.NONE

    def fetch_offsets(self) -> Ask:
        topic = self.rng.choice(TOPICS)
        wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=[0, 1, 2])
        group = OffsetFetchRequestGroup(group_id=self.group_id, topics=[wanted])
        yield from self.ask(
            OffsetFetchRequest(groups=[group], require_stable=self.rng.random() < 0.5),
            8,
            answered=partial(self._fetched, topic),
        )

    def _fetched(self, topic: str, pending: Pending) -> None:
        group = pending.response.groups[0]
        if group.error_code == ErrorCode.NONE and topic in self.logs.topics:
            for one in group.topics[0].partitions if group.topics else ():
                if one.error_code == ErrorCode.NONE:
                    self.groups.fetched((self.group_id, topic, one.partition_index), one.committed_offset)


class ModernConsumer(Consumer):
    """The protocol of KIP-848."""

    group_id = CONSUMER_GROUP

    def live(self) -> Life:
        while True:
            if not self.member_id:
                self.member_id = str(UUID(int=self.rng.getrandbits(128), version=4))
                self.epoch = 0
            match self.rng.choices(("beat", "commit", "offsets", "leave", "vanish"), (50, 25, 8, 2, 1))[0]:
                case "commit" if self.epoch > 0:
                    if not (yield from self.commit()):
                        yield from self.beat()
                case "offsets":
                    yield from self.fetch_offsets()
                case "leave" if self.epoch > 0:
                    yield from self.leave()
                case "vanish":
                    self.member_id, self.assigned = "", set()
                    yield None
                case _:
                    yield from self.beat()

    def wants_to_share(self) -> bool:
        if not self.member_id:
            self.member_id, self.epoch = str(UUID(int=self.rng.getrandbits(128), version=4)), 0
        return True

    def beat(self) -> Ask:
        is_full = self.epoch == 0 or self.rng.random() < 0.3
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=REBALANCE_MS if is_full else -1,
            subscribed_topic_names=self.subscription if is_full else None,
            topic_partitions=[] if self.epoch == 0 else [
                TopicPartitions(topic_id=topic_id, partitions=[index]) for topic_id, index in sorted(self.assigned)
            ],
        )  # fmt: skip
        response = yield from self.ask(request, 1, timeout_ms=5_000)
        if response is not None:
            self.note(response)

    def note(self, response: Any) -> None:
        match response.error_code:
            case ErrorCode.NONE:
                self.epoch = response.member_epoch
                if response.assignment is not None:
                    self.assigned = {
                        (topic.topic_id, index)
                        for topic in response.assignment.topic_partitions
                        for index in topic.partitions
                    }
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_MEMBER_EPOCH | ErrorCode.GROUP_ID_NOT_FOUND:
                self.epoch, self.assigned = 0, set()

    def leave(self) -> Ask:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=-1
        )
        yield from self.ask(request, 1, timeout_ms=5_000)
        self.member_id, self.assigned = "", set()


class ClassicConsumer(Consumer):
    """JoinGroup and SyncGroup; the leader assigns."""

    group_id = CLASSIC_GROUP

    def live(self) -> Life:
        while True:
            if not self.member_id or self.epoch <= 0:
                yield from self.join()
                continue
            match self.rng.choices(("beat", "commit", "offsets", "leave", "vanish"), (30, 30, 8, 2, 1))[0]:
                case "beat":
                    yield from self.beat()
                case "commit":
                    if not (yield from self.commit()):
                        self.epoch = 0
                case "offsets":
                    yield from self.fetch_offsets()
                case "leave":
                    request = LeaveGroupRequest(
                        group_id=self.group_id, members=[MemberIdentity(member_id=self.member_id)]
                    )
                    yield from self.ask(request, 5)
                    self.member_id, self.epoch = "", 0
                case "vanish":
                    self.member_id, self.epoch = "", 0
                    yield None

    def join(self) -> Ask:
        subscription = encode(ConsumerProtocolSubscription(topics=self.subscription), 1)
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\x00\x01" + bytes(subscription))],
        )
        response = yield from self.ask(request, 9, timeout_ms=REBALANCE_MS + SESSION_MS)
        if response is None:
            return
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            return
        if response.error_code != ErrorCode.NONE:
            self.member_id, self.epoch = "", 0
            return
        self.member_id, generation = response.member_id, response.generation_id
        assignments = []
        if response.leader == self.member_id:
            members = sorted(member.member_id for member in response.members)
            partitions = sorted(
                (topic_id.hex(), index)
                for name, topic_id in self.logs.topics.items()
                for index in range(self.logs.partitions.get(topic_id, 0))
            )
            assignments = [
                SyncGroupRequestAssignment(
                    member_id=member, assignment=json.dumps(partitions[number :: len(members)]).encode()
                )
                for number, member in enumerate(members)
            ]
        sync = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=assignments,
        )
        response = yield from self.ask(sync, 5, timeout_ms=REBALANCE_MS + SESSION_MS)
        if response is not None and response.error_code == ErrorCode.NONE:
            self.epoch = generation
            given = json.loads(response.assignment or b"[]")
            self.assigned = {(bytes.fromhex(topic_id), index) for topic_id, index in given}
        elif response is not None and response.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id, self.epoch = "", 0

    def beat(self) -> Ask:
        request = HeartbeatRequest(group_id=self.group_id, generation_id=self.epoch, member_id=self.member_id)
        response = yield from self.ask(request, 4)
        if response is None or response.error_code == ErrorCode.NONE:
            return
        self.epoch = 0
        if response.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
