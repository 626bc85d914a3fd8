"""A cluster for the client core, in memory: it answers as brokers do, and notices every wrong acknowledgement.

Each `ModelBroker` leads some partitions. It knows which acquisition an offset belongs to, so that an acknowledgement
meant for an older one is found out, which a real broker could not tell.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from headrace.client.core.acknowledgements import Ack
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.share_acknowledge_response import PartitionData as AcknowledgedPartition
from headrace.wire.messages.share_acknowledge_response import (
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from headrace.wire.messages.share_fetch_request import ShareFetchRequest
from headrace.wire.messages.share_fetch_response import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchResponse,
)
from headrace.wire.records import NewRecord, build_batch

TOPIC_ID = b"t" * 16
LOCK_MS = 1_000
ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
GAP = 0
AVAILABLE, FINAL = "available", "final"


@dataclass(slots=True)
class Locked:
    """An offset that the member holds, as the broker sees it."""

    acquisition: int
    until_ms: int


@dataclass(slots=True)
class ModelPartition:
    index: int
    size: int = 0
    epoch: int = 0
    states: dict[int, Any] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)

    def produce(self, count: int) -> None:
        for offset in range(self.size, self.size + count):
            self.states[offset] = AVAILABLE
        self.size += count

    def expire(self, now_ms: int) -> None:
        for offset, state in self.states.items():
            if isinstance(state, Locked) and now_ms >= state.until_ms:
                self.states[offset] = AVAILABLE

    def release_all(self) -> None:
        for offset, state in self.states.items():
            if isinstance(state, Locked):
                self.states[offset] = AVAILABLE


@dataclass(slots=True)
class Session:
    expected: int
    listed: set[int]


class WrongAcknowledgement(AssertionError):
    """The client has done what no client may."""


class ModelCluster:
    """Two brokers and the partitions they lead, in one process with the test."""

    def __init__(self, partitions: int, nodes: int) -> None:
        self.now_ms = 0
        self.partitions = {index: ModelPartition(index) for index in range(partitions)}
        self.leaders = {index: index % nodes for index in range(partitions)}
        self.sessions: dict[int, Session] = {}
        self.acquisitions = 0
        self.applied: list[tuple[int, int, int]] = []
        """Every terminal acknowledgement that took effect: (acquisition, offset, type)."""
        self.broken: set[int] = set()
        """Brokers that answer the next request with a top-level error."""
        self.lock_ends: dict[tuple[int, int], int] = {}
        """When the lock of an offset ends at the latest, by (acquisition, offset)."""
        self.write_fails: set[int] = set()
        """Partitions whose state cannot be written for now: acknowledgements are refused with 15."""

    def on_broker(self, node: int) -> Iterator[ModelPartition]:
        return (part for index, part in self.partitions.items() if self.leaders[index] == node)

    def expire(self) -> None:
        for part in self.partitions.values():
            part.expire(self.now_ms)

    def disconnect(self, node: int) -> None:
        """The connection is gone: its session, and every lock of it."""
        if self.sessions.pop(node, None) is not None:
            for part in self.on_broker(node):
                part.release_all()

    def move(self, index: int, node: int) -> None:
        """A new leader: it knows what was written down, and no locks."""
        if self.leaders[index] != node:
            self.leaders[index] = node
            self.partitions[index].epoch += 1
            self.partitions[index].release_all()

    def handle(self, node: int, request: Any, meant: list[Ack], ids: dict[int, int]) -> Any:
        """The answer to a request. `meant` are the client's acknowledgements in it; `ids` its acquisitions' numbers."""
        self.expire()
        is_fetch = isinstance(request, ShareFetchRequest)
        answer = ShareFetchResponse if is_fetch else ShareAcknowledgeResponse
        code = self._session(node, request, is_fetch)
        if code:
            return answer(error_code=code)
        if node in self.broken:
            self.broken.discard(node)
            return answer(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        codes = self._acknowledge(node, request, meant, ids)
        if request.share_session_epoch == -1:
            self.disconnect(node)
        if not is_fetch:
            partitions = [
                AcknowledgedPartition(partition_index=index, error_code=code) for index, code in codes.items()
            ]
            return ShareAcknowledgeResponse(
                acquisition_lock_timeout_ms=LOCK_MS,
                responses=[ShareAcknowledgeTopicResponse(topic_id=TOPIC_ID, partitions=partitions)],
            )
        return self._fetch(node, request, codes)

    def _session(self, node: int, request: Any, is_fetch: bool) -> int:
        epoch = request.share_session_epoch
        session = self.sessions.get(node)
        has_acks = any(part.acknowledgement_batches for topic in request.topics for part in topic.partitions)
        if epoch == 0:
            if not is_fetch or has_acks:
                raise WrongAcknowledgement(f"epoch 0 in {request}")
            self.sessions[node] = Session(1, set())
            return 0
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch == -1:
            return 0
        if epoch != session.expected:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session.expected += 1
        return 0

    def _acknowledge(self, node: int, request: Any, meant: list[Ack], ids: dict[int, int]) -> dict[int, int]:
        owners: dict[tuple[int, int], int] = {}
        for ack in meant:
            for offset in range(ack.first, ack.last + 1):
                key = ack.acquired.partition, offset
                if key in owners:
                    raise WrongAcknowledgement(f"offset {key} twice in one request")
                owners[key] = ids[id(ack.acquired)]
        codes: dict[int, int] = {}
        for topic in request.topics:
            for part in topic.partitions:
                if part.acknowledgement_batches:
                    index = part.partition_index
                    codes[index] = self._apply(node, request, index, part.acknowledgement_batches, owners)
        return codes

    def _apply(
        self, node: int, request: Any, index: int, batches: Any, owners: dict[tuple[int, int], int]
    ) -> int:
        if self.leaders[index] != node:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        part = self.partitions[index]
        changes: list[tuple[int, int]] = []
        following = -1
        for batch in batches:
            if batch.first_offset < following or batch.last_offset < batch.first_offset:
                raise WrongAcknowledgement(f"not ascending: {batches}")
            following = batch.last_offset + 1
            offsets = range(batch.first_offset, batch.last_offset + 1)
            types = list(batch.acknowledge_types)
            if len(types) not in (1, len(offsets)):
                raise WrongAcknowledgement(f"{len(types)} types for {len(offsets)} offsets")
            changes += zip(offsets, types * len(offsets) if len(types) == 1 else types, strict=True)
        has_renew = any(kind == RENEW for _, kind in changes)
        if has_renew and (isinstance(request, ShareFetchRequest) or not request.is_renew_ack):
            raise WrongAcknowledgement("RENEW without IsRenewAck")
        if index in self.write_fails and not all(kind == RENEW for _, kind in changes):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        for offset, kind in changes:
            state = part.states[offset]
            if not isinstance(state, Locked):
                return ErrorCode.INVALID_RECORD_STATE
            if state.acquisition != owners[index, offset]:
                raise WrongAcknowledgement(
                    f"type {kind} for offset {offset} of acquisition {owners[index, offset]} "
                    f"would have hit acquisition {state.acquisition}"
                )
        for offset, kind in changes:
            self._change(part, offset, kind)
        return 0

    def _change(self, part: ModelPartition, offset: int, kind: int) -> None:
        state = part.states[offset]
        if kind == RENEW:
            state.until_ms = self.now_ms + LOCK_MS
            self.lock_ends[state.acquisition, offset] = state.until_ms
            return
        self.applied.append((state.acquisition, offset, kind))
        part.states[offset] = AVAILABLE if kind == RELEASE else FINAL

    def _fetch(self, node: int, request: ShareFetchRequest, codes: dict[int, int]) -> ShareFetchResponse:
        session = self.sessions[node]
        for topic in request.topics:
            session.listed.update(part.partition_index for part in topic.partitions)
        for topic in request.forgotten_topics_data:
            session.listed.difference_update(topic.partitions)
        left = request.max_records
        partitions = []
        for index in sorted(session.listed | set(codes)):
            data = PartitionData(partition_index=index, acknowledge_error_code=codes.get(index, 0))
            if index in session.listed and self.leaders[index] != node:
                data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                data.current_leader = LeaderIdAndEpoch(
                    leader_id=self.leaders[index], leader_epoch=self.partitions[index].epoch
                )
            elif index in session.listed:
                data.acquired_records = self._acquire(self.partitions[index], left)
                data.records = b"".join(map(_batch, data.acquired_records))
                left -= sum(one.last_offset - one.first_offset + 1 for one in data.acquired_records)
            partitions.append(data)
        return ShareFetchResponse(
            acquisition_lock_timeout_ms=LOCK_MS,
            responses=[ShareFetchableTopicResponse(topic_id=TOPIC_ID, partitions=partitions)],
        )

    def _acquire(self, part: ModelPartition, most: int) -> list[AcquiredRecords]:
        """Ranges of neighbors with the same delivery count; each is an acquisition."""
        entries: list[AcquiredRecords] = []
        for offset in [offset for offset, state in part.states.items() if state is AVAILABLE][: max(0, most)]:
            count = part.counts[offset] = part.counts.get(offset, 0) + 1
            last = entries[-1] if entries else None
            if last is not None and last.last_offset == offset - 1 and last.delivery_count == count:
                last.last_offset = offset
            else:
                self.acquisitions += 1
                entries.append(AcquiredRecords(first_offset=offset, last_offset=offset, delivery_count=count))
            part.states[offset] = Locked(self.acquisitions, self.now_ms + LOCK_MS)
            self.lock_ends[self.acquisitions, offset] = self.now_ms + LOCK_MS
        return entries

    def acquisition_of(self, index: int, offset: int) -> int:
        state = self.partitions[index].states[offset]
        assert isinstance(state, Locked)
        return state.acquisition


def _batch(acquired: AcquiredRecords) -> bytes:
    offsets = range(acquired.first_offset, acquired.last_offset + 1)
    records = [NewRecord(None, str(offset).encode(), (), 0) for offset in offsets]
    return build_batch(records, base_offset=acquired.first_offset)
