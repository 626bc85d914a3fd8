"""Members of classic groups for tests: they speak through the handlers, as a client would."""

from dataclasses import dataclass
from typing import Any

from headrace.broker.handlers import heartbeat, join_group, leave_group, offset_commit, sync_group
from headrace.wire.codec import encode
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from headrace.wire.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.unit.broker.groups.fake_core import FakeCore

INITIAL_DELAY_MS = 3_000


def subscription(*topics: str) -> bytes:
    return b"\0\0" + encode(ConsumerProtocolSubscription(topics=topics), 0)


@dataclass
class ClassicClient:
    core: FakeCore
    group_id: str = "g"
    instance_id: str | None = None
    member_id: str = ""
    generation: int = -1
    protocol_type: str = "consumer"
    protocols: tuple[tuple[str, bytes], ...] = (("range", subscription("t")),)
    session_ms: int = 10_000
    rebalance_ms: int = 60_000
    version: int = 9

    def ask_to_join(self) -> Any:
        """One JoinGroup: its response, or a Later if it is parked."""
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in self.protocols],
        )
        return self.core.handle(join_group, request, version=self.version)

    def join(self) -> Any:
        """As a client does: with the id it is given, if it is told to come back with one."""
        answer = self.ask_to_join()
        if getattr(answer, "error_code", None) == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            answer = self.ask_to_join()
        return answer

    def take(self, joined: Any) -> "ClassicClient":
        """Notes what a successful JoinGroup has brought."""
        assert joined.error_code == ErrorCode.NONE
        self.member_id, self.generation = joined.member_id, joined.generation_id
        return self

    def sync(self, **assignments: bytes) -> Any:
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocols[0][0],
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in assignments.items()
            ],
        )
        return self.core.handle(sync_group, request)

    def heartbeat(self) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )
        return ErrorCode(self.core.handle(heartbeat, request).error_code)

    def leave(self) -> ErrorCode:
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)
        response = self.core.handle(
            leave_group, LeaveGroupRequest(group_id=self.group_id, members=[identity])
        )
        return ErrorCode(response.members[0].error_code)

    def commit(self, offset: int, *, topic: str = "t", metadata: str = "") -> ErrorCode:
        partition = OffsetCommitRequestPartition(committed_offset=offset, committed_metadata=metadata)
        request = OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        response = self.core.handle(offset_commit, request, version=9)
        return ErrorCode(response.topics[0].partitions[0].error_code)


def stable_group(core: FakeCore, *clients: ClassicClient) -> list[ClassicClient]:
    """A group of these clients (or of two) after its first rebalance; the first one leads, and all are assigned."""
    members = [*clients] or [ClassicClient(core), ClassicClient(core)]
    parked = [client.join() for client in members]
    core.pass_time(INITIAL_DELAY_MS * len(members))
    for client, joined in zip(members, parked, strict=True):
        client.take(joined.value)
    leader, *followers = members
    waiting = [client.sync() for client in followers]
    leader.sync(**{client.member_id: f"part of {number}".encode() for number, client in enumerate(members)})
    assert all(later.is_done for later in waiting)
    return members
