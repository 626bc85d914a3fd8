"""A whole broker core in memory with a clock that only tests move, and share consumers that speak to it by messages."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from headrace.broker.call import Call
from headrace.broker.core import BrokerCore
from headrace.broker.groups.coordinator import GroupCoordinator
from headrace.broker.groups.share import ShareGroup
from headrace.broker.handlers import handler_of
from headrace.broker.later import Later
from headrace.broker.runner import Done, Work
from headrace.broker.settings import Settings
from headrace.log.memory_disk import MemoryDisk
from headrace.wire.message import Message
from headrace.wire.messages.share_group_describe_request import ShareGroupDescribeRequest
from headrace.wire.messages.share_group_describe_response import DescribedGroup, ShareGroupDescribeResponse
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from headrace.wire.records import NewRecord, build_batch
from headrace.wire.share_state import ShareKey

SETTLING_MS, REST_MS = 100, 5_000


class FrozenClock:
    """The wall clock is a million seconds ahead of the monotonic one, so that a mix-up shows."""

    def __init__(self) -> None:
        self.now_ms = 1_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms + 1_000_000_000


class AtOnce:
    """Syncs without a thread; while it is held, not at all."""

    def __init__(self) -> None:
        self.is_held = False

    def run(self, work: Work, done: Done) -> None:
        if self.is_held:
            return
        work()
        done(None)

    run_slow = run


class ShareWorld:
    def __init__(self, folder: Path, **settings: object) -> None:
        self.clock = FrozenClock()
        self.disk = MemoryDisk(is_simulated=True)
        self._metadata = folder / "metadata.sqlite"
        self._given = {"headrace.share.initial.rebalance.delay.ms": 0, **settings}
        self.runner = AtOnce()
        self.start()

    def start(self) -> None:
        self.runner.is_held = False
        self.core = BrokerCore(
            Settings(self._given),
            disk=self.disk,
            metadata_path=self._metadata,
            clock=self.clock,
            runner=self.runner,
            on_failure=lambda error: None,
        )

    def power_cycle(self) -> None:
        """The machine goes down and comes back with what was synced."""
        self.core.metadata.close()
        self.disk.power_cycle()
        self.start()

    def kill(self) -> None:
        """The process is killed and started again; the operating system has all that was written."""
        self.core.metadata.close()
        self.disk.restart()
        self.start()

    def close(self) -> None:
        self.core.close()

    def ask(self, request: Message, version: int | None = None, **call: Any) -> Any:
        """As a client gets it: the error response where the handler refuses, and what a Later has come to."""
        low_high = handler_of(request.API_KEY).VERSIONS
        call.setdefault("client_id", "client")
        answer: Any = self.core.handle(
            request, Call(api_version=low_high[1] if version is None else version, **call)
        )
        if isinstance(answer, Later):
            assert answer.is_done
            answer = answer.value
        return answer

    def pass_time(self, ms: int) -> None:
        """Step by step through every deadline, as the event loop would."""
        end_ms = self.clock.now_ms + ms
        while (deadline_ms := self.core.deadline_ms()) is not None and deadline_ms <= end_ms:
            self.clock.now_ms = max(self.clock.now_ms, deadline_ms)
            self.core.settle()
        self.clock.now_ms = end_ms

    def new_topic(self, name: str = "t", partitions: int = 1) -> bytes:
        return self.core.topics.create(name, partitions=partitions, configs={}).id

    def write(self, topic: str, count: int, partition: int = 0) -> None:
        log = self.core.topics.require(topic, partition).log
        now_ms = self.clock.wall_ms()
        records = [NewRecord(None, str(number).encode(), timestamp=now_ms) for number in range(count)]
        log.append(build_batch(records), now_ms=now_ms)
        assert self.core.durable([log]).is_done

    def heartbeat(
        self, member_id: str, epoch: int, topics: Sequence[str] | None = None, group: str = "g", **fields: Any
    ) -> ShareGroupHeartbeatResponse:
        request = ShareGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            subscribed_topic_names=topics,
            **fields,
        )
        return cast(ShareGroupHeartbeatResponse, self.ask(request))

    def describe(self, group: str = "g") -> DescribedGroup:
        response = self.ask(ShareGroupDescribeRequest(group_ids=[group]))
        assert isinstance(response, ShareGroupDescribeResponse)
        return response.groups[0]

    def group(self, group: str = "g") -> ShareGroup:
        found = self.core.groups.state.registry.get(group)
        assert isinstance(found, ShareGroup)
        return found

    def state(self, topic_id: bytes, partition: int = 0, group: str = "g") -> Any:
        return self.core.share_state.get(ShareKey(group, topic_id, partition))

    def check_replay(self) -> None:
        """A second coordinator that reads the journal must come to the same."""
        second = GroupCoordinator(self.core)
        second.replay()
        assert second.state.snapshot() == self.core.groups.state.snapshot()


def assigned(response: ShareGroupHeartbeatResponse) -> dict[bytes, list[int]] | None:
    if response.assignment is None:
        return None
    return {topic.topic_id: list(topic.partitions) for topic in response.assignment.topic_partitions}
