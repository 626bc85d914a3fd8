"""What a group's control topic says: how far each step has been read, what is canceled, what was sent when."""

from headrace.client.cluster import Cluster
from headrace.client.errors import error_for
from headrace.client.plain_fetch import list_offsets, read_range
from headrace.wire.enums import OffsetSpec
from headrace.wire.errors import ErrorCode
from headrace.wire.message import ZERO_UUID
from headrace.wire.records import read_records
from headrace.worker.later import CANCEL, EVERY, POSITIONS, STEPS, StepPositions, read_moment


class ControlState:
    def __init__(self) -> None:
        self.positions = StepPositions()
        """The next record to be read, of each step."""
        self.canceled: dict[str, int] = {}
        """Ids, and the times (ms) when they would have been due."""
        self.fired: dict[str, int] = {}
        """Periodic tasks by their topics, and the last moment (ms) for which each was sent."""

    def apply(self, key: bytes, value: bytes | None) -> None:
        if key == POSITIONS and value is not None:
            self.positions = StepPositions.read(value)
        elif key.startswith(CANCEL):
            _put(self.canceled, key.removeprefix(CANCEL), value)
        elif key.startswith(EVERY):
            _put(self.fired, key.removeprefix(EVERY), value)


class ControlReader:
    """Follows the topic: `catch_up` reads what is new, without aborted transactions."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.state = ControlState()
        self.position: int | None = None
        self._cluster = cluster
        self._topic = topic
        self._topic_id = ZERO_UUID

    async def catch_up(self, end: int | None = None) -> None:
        """Up to `end`, or up to what is committed now."""
        place = (self._topic, 0)
        if end is None:
            end = (await list_offsets(self._cluster, {place: OffsetSpec.LATEST}, committed=True))[place]
        known = self._cluster.topic(self._topic)
        if (
            known is not None and known.topic_id != self._topic_id
        ):  # it is read for the first time, or created again
            self._topic_id, self.position = known.topic_id, None
        if self.position is None:
            self.position = (await list_offsets(self._cluster, {place: OffsetSpec.EARLIEST}))[place]
        if self.position >= end:
            return
        async for _, batch in read_range(
            self._cluster, self._topic, 0, self.position, end - 1, committed=True
        ):
            for record in read_records(batch):
                if record.offset >= self.position and record.key is not None:
                    self.state.apply(record.key, record.value)
        self.position = end


async def valid_positions(cluster: Cluster, topic: str, noted: StepPositions) -> StepPositions:
    """The noted positions for `topic` as it is now. A step is read from its start if its position is not in the log:
    the topic was deleted and created again, or the control topic was."""
    await cluster.refresh([topic])
    known = cluster.topic(topic)
    if known is None:
        raise error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic} does not exist")
    places = [(topic, step) for step in range(STEPS)]
    ends = await list_offsets(cluster, dict.fromkeys(places, OffsetSpec.LATEST), committed=True)
    starts = await list_offsets(cluster, dict.fromkeys(places, OffsetSpec.EARLIEST))
    is_same = known.topic_id == noted.topic_id
    offsets = (
        offset if is_same and starts[place] <= offset <= ends[place] else starts[place]
        for place, offset in zip(places, noted.offsets, strict=True)
    )
    return StepPositions(known.topic_id, tuple(offsets))


def _put(numbers: dict[str, int], key: bytes, value: bytes | None) -> None:
    name = key.decode("utf-8", "replace")
    if value is None:
        numbers.pop(name, None)
    else:
        numbers[name] = read_moment(value)
