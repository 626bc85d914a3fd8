"""The short ways of usual requests and responses give what the general ways give, byte for byte and state for state.

Four short ways: `KeptFrames` writes requests, `READERS` read responses, `MemberCore` takes usual responses in, and
`decode` opens a single small batch. Each is compared with the general one. For the core, the state machine of
`test_client_core.py` runs with every response in its short form wherever it has one; beside it a copy of the core takes
the same response as a message, and the states of both must be equal afterward, as must be what they command.
"""

import copy
from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from headrace.client import decoding
from headrace.client.core.holdings import Arrival
from headrace.client.core.member import Commands, MemberCore
from headrace.client.core.ranges import AcquiredRange, RangeCause
from headrace.client.decoding import Deliveries, Opened, Readable, decode, decode_into
from headrace.client.settings import ShareSettings
from headrace.client.usual import READERS, VERSION, KeptFrames
from headrace.wire.apis import RequestHeader, read_response_header, response_class, write_request_header
from headrace.wire.batches import seal
from headrace.wire.codec import read_message, write_message
from headrace.wire.message import Message
from headrace.wire.messages import share_acknowledge_request as acknowledge_request
from headrace.wire.messages import share_acknowledge_response as acknowledge_response
from headrace.wire.messages import share_fetch_request as fetch_request
from headrace.wire.messages import share_fetch_response as fetch_response
from headrace.wire.records import Compression, NewRecord, build_batch
from tests.property.test_client_core import ClientMachine, kinds, partitions

FETCH = 78
TOPIC_IDS = st.sampled_from([b"t" * 16, bytes(16), b"\x02" * 16])
# Mostly what is usual, so that all of it together often is; and now and then something else.
codes = st.sampled_from([0] * 12 + [6, 121, -1])
texts = st.sampled_from([None] * 12 + ["", "no", "ü" * 100])
numbers = st.sampled_from([0, 1, 255, 2**31 - 1])
offsets = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))


def several(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """One most of the time."""
    return st.sampled_from([1] * 8 + [0, 2]).flatmap(
        lambda size: st.lists(elements, min_size=size, max_size=size)
    )


def seldom(elements: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.sampled_from([0] * 12 + [1]).flatmap(
        lambda size: st.lists(elements, min_size=size, max_size=size)
    )


endpoints = st.builds(fetch_response.NodeEndpoint, node_id=numbers, host=st.just("h"), port=numbers)
leaders = st.builds(fetch_response.LeaderIdAndEpoch, leader_id=numbers, leader_epoch=numbers)
acquired_records = st.builds(
    fetch_response.AcquiredRecords,
    first_offset=offsets,
    last_offset=offsets,
    delivery_count=st.integers(1, 2**15 - 1),
)
fetched = st.builds(
    fetch_response.ShareFetchResponse,
    throttle_time_ms=st.sampled_from([0] * 12 + [5]),
    error_code=codes,
    error_message=texts,
    acquisition_lock_timeout_ms=numbers,
    responses=several(
        st.builds(
            fetch_response.ShareFetchableTopicResponse,
            topic_id=TOPIC_IDS,
            partitions=several(
                st.builds(
                    fetch_response.PartitionData,
                    partition_index=numbers,
                    error_code=codes,
                    error_message=texts,
                    acknowledge_error_code=codes,
                    acknowledge_error_message=texts,
                    current_leader=leaders,
                    records=st.sampled_from([0, 1, 126, 127, 128, 20_000]).map(bytes),
                    acquired_records=several(acquired_records),
                )
            ),
        )
    ),
    node_endpoints=seldom(endpoints),
)
acknowledged = st.builds(
    acknowledge_response.ShareAcknowledgeResponse,
    throttle_time_ms=st.sampled_from([0] * 12 + [5]),
    error_code=codes,
    error_message=texts,
    acquisition_lock_timeout_ms=numbers,
    responses=several(
        st.builds(
            acknowledge_response.ShareAcknowledgeTopicResponse,
            topic_id=TOPIC_IDS,
            partitions=several(
                st.builds(
                    acknowledge_response.PartitionData,
                    partition_index=numbers,
                    error_code=codes,
                    error_message=texts,
                )
            ),
        )
    ),
)


def frame_of(response: Message) -> bytes:
    out = bytearray(b"\x00\x00\x00\x07\x00")
    write_message(response, VERSION, out)
    return bytes(out)


def is_usual(response: Any) -> bool:
    """As a reader of the messages would say it."""
    if response.throttle_time_ms or response.error_code or response.error_message is not None:
        return False
    if len(response.responses) != 1 or len(response.responses[0].partitions) != 1 or response.node_endpoints:
        return False
    (one,) = response.responses[0].partitions
    if one.error_code or one.error_message is not None:
        return False
    if isinstance(response, acknowledge_response.ShareAcknowledgeResponse):
        return True
    if one.acknowledge_error_code or one.acknowledge_error_message is not None:
        return False
    return len(one.acquired_records) == 1 and (
        one.acquired_records[0].first_offset <= one.acquired_records[0].last_offset
    )


def without_leader(response: Any) -> Any:
    """Which is of no meaning where there is no error."""
    for topic in response.responses:
        for one in topic.partitions:
            one.current_leader = type(one.current_leader)()
    return response


@settings(max_examples=150, deadline=None)
@given(st.one_of(fetched, acknowledged))
def test_exactly_the_usual_responses_have_a_short_form_and_it_says_the_same(response: Any) -> None:
    usual = READERS[response.API_KEY, VERSION](frame_of(response))
    assert (usual is not None) == is_usual(response)
    if usual is not None:
        assert frame_of(usual.as_message()) == frame_of(without_leader(response))


@settings(max_examples=150, deadline=None)
@given(st.one_of(fetched, acknowledged).filter(is_usual), st.data())
def test_bytes_that_were_changed_are_read_alike_or_left_to_the_codec(response: Any, data: Any) -> None:
    frame = bytearray(frame_of(response))
    for _ in range(data.draw(st.integers(1, 2))):
        frame[data.draw(st.integers(4, min(len(frame) - 1, 80)))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        frame = frame[: data.draw(st.integers(4, len(frame)))]
    elif data.draw(st.booleans()):
        frame += b"\0"
    usual = READERS[response.API_KEY, VERSION](bytes(frame))
    if usual is not None:
        general, end = read_generally(response.API_KEY, bytes(frame))
        assert end == len(frame)
        assert frame_of(usual.as_message()) == frame_of(without_leader(general))


def read_generally(api_key: int, frame: bytes) -> tuple[Any, int]:
    _, position = read_response_header(api_key, VERSION, frame)
    return read_message(response_class(api_key), VERSION, frame, position)


def test_a_length_of_too_many_bytes_is_left_to_the_codec() -> None:
    """Whoever waits for the response hears of it from there."""
    data = fetch_response.PartitionData(
        records=bytes(300), acquired_records=[fetch_response.AcquiredRecords()]
    )
    topic = fetch_response.ShareFetchableTopicResponse(partitions=[data])
    frame = frame_of(fetch_response.ShareFetchResponse(responses=[topic]))
    assert READERS[FETCH, VERSION](frame) is not None
    at = frame.index(b"\xad\x02" + bytes(300))
    assert READERS[FETCH, VERSION](frame[:at] + b"\xff" * 6 + frame[at + 6 :]) is None


groups = st.sampled_from(["g", "another group"])
members = st.sampled_from(["m" * 22, "n" * 22])
epochs = st.sampled_from([-1, 0, 1, 2, 2**31 - 1])
types = st.one_of(
    st.lists(st.integers(0, 4), min_size=1, max_size=1), st.lists(st.integers(0, 4), min_size=2, max_size=3)
)


def batches(module: Any) -> st.SearchStrategy[list[Any]]:
    return several(
        st.builds(
            module.AcknowledgementBatch, first_offset=offsets, last_offset=offsets, acknowledge_types=types
        )
    )


fetches = st.builds(
    fetch_request.ShareFetchRequest,
    group_id=groups,
    member_id=members,
    share_session_epoch=epochs,
    max_wait_ms=numbers,
    min_bytes=numbers,
    max_bytes=numbers,
    max_records=numbers,
    batch_size=numbers,
    share_acquire_mode=st.sampled_from([0, 1]),
    is_renew_ack=st.booleans(),
    topics=seldom(
        st.builds(
            fetch_request.FetchTopic,
            topic_id=TOPIC_IDS,
            partitions=several(
                st.builds(
                    fetch_request.FetchPartition,
                    partition_index=numbers,
                    acknowledgement_batches=batches(fetch_request),
                )
            ),
        )
    ),
    forgotten_topics_data=seldom(
        st.builds(fetch_request.ForgottenTopic, topic_id=TOPIC_IDS, partitions=st.just([1]))
    ),
)
acknowledges = st.builds(
    acknowledge_request.ShareAcknowledgeRequest,
    group_id=groups,
    member_id=members,
    share_session_epoch=epochs,
    is_renew_ack=st.booleans(),
    topics=several(
        st.builds(
            acknowledge_request.AcknowledgeTopic,
            topic_id=TOPIC_IDS,
            partitions=several(
                st.builds(
                    acknowledge_request.AcknowledgePartition,
                    partition_index=numbers,
                    acknowledgement_batches=batches(acknowledge_request),
                )
            ),
        )
    ),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(fetches, acknowledges), min_size=2, max_size=12))
def test_a_kept_frame_is_what_the_codec_writes(requests: list[Any]) -> None:
    kept = KeptFrames()
    for request in requests:
        frame = bytearray(4)
        write_request_header(frame, RequestHeader(request.API_KEY, VERSION, 7, "client"))
        write_message(request, VERSION, frame)
        frame[:4] = (len(frame) - 4).to_bytes(4)
        found = kept.frame(request, VERSION)
        assert found is None or found == frame
        kept.keep(request, VERSION, frame)


def test_requests_of_the_steady_state_are_kept() -> None:
    kept = KeptFrames()
    batch = acknowledge_request.AcknowledgementBatch(first_offset=3, last_offset=3, acknowledge_types=(1,))
    partition = acknowledge_request.AcknowledgePartition(partition_index=0, acknowledgement_batches=[batch])
    topic = acknowledge_request.AcknowledgeTopic(topic_id=b"t" * 16, partitions=[partition])
    for request in (
        fetch_request.ShareFetchRequest(group_id="g", member_id="m", share_session_epoch=1),
        acknowledge_request.ShareAcknowledgeRequest(group_id="g", member_id="m", topics=[topic]),
    ):
        frame = bytearray(4)
        write_request_header(frame, RequestHeader(request.API_KEY, VERSION, 7, "client"))
        write_message(request, VERSION, frame)
        kept.keep(request, VERSION, frame)
        assert kept.frame(request, VERSION) == frame


def state_of(value: Any, seen: dict[int, int]) -> Any:
    """Everything an object holds, and where the same object is held twice."""
    if value is None or isinstance(value, bool | int | float | str | bytes | bytearray | Enum):
        return value
    if isinstance(value, BaseException):
        return repr(value)
    if isinstance(value, ShareSettings):
        return "settings"
    if id(value) in seen:
        return f"object {seen[id(value)]}"
    if isinstance(value, frozenset | set):
        return sorted(map(repr, value))
    if isinstance(value, tuple) and not value:
        return ()
    if not isinstance(value, tuple):
        seen[id(value)] = len(seen)
    if isinstance(value, Mapping):
        return [(state_of(key, seen), state_of(each, seen)) for key, each in value.items()]
    if isinstance(value, list | tuple | deque):
        return tuple(state_of(each, seen) for each in value)
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    names += list(getattr(value, "__dict__", {}))
    return [type(value).__name__, *((name, state_of(getattr(value, name), seen)) for name in names)]


CALM = {"_is_calm", "_calm_until_ms"}
"""What the core need not look at again; it shows in what it commands, and when."""


def core_state(core: MemberCore) -> Any:
    seen: dict[int, int] = {}
    return [(name, state_of(value, seen)) for name, value in vars(core).items() if name not in CALM]


def twin_of(core: MemberCore) -> MemberCore:
    return copy.deepcopy(core, {id(core.settings): core.settings})


class ShortAndGeneral(ClientMachine):
    """Whatever has a short form arrives in it, and in its general form at a copy of the core."""

    usual = 0

    @rule(index=partitions, kind=kinds, is_with_fetch=st.booleans())
    def round_trip(self, index: int, kind: int, is_with_fetch: bool) -> None:
        """What an application does most of the time: one record, and its answer."""
        self.produce(index, 1)
        self.exchange()
        known = len(self.taken)
        self.take()
        for acquired in self.taken[known:]:
            self.decide(acquired, acquired.first, acquired.last, kind)
        if is_with_fetch:
            self.exchange()
        else:
            self.send()
            for node in sorted(self.flights):
                self.deliver(node)

    def take_in(self, node: int, response: Any) -> None:
        """Brokers leave out partitions of which there is nothing to say."""
        acked = {ack.acquired.partition for ack in self.core._holdings.lanes[node].in_flight}
        for topic in response.responses:
            topic.partitions = [
                one
                for one in topic.partitions
                if one.error_code or one.partition_index in acked or getattr(one, "acquired_records", ())
            ]
        short = READERS[response.API_KEY, VERSION](frame_of(response))
        if short is None:
            super().take_in(node, response)
            return
        ShortAndGeneral.usual += 1
        twin = twin_of(self.core)
        twin.responded(node, response, now_ms=self.now_ms)
        self.core.responded(node, short, now_ms=self.now_ms)
        assert core_state(self.core) == core_state(twin)

    def commands(self) -> Commands:
        """A core that has looked at everything anew commands the same, and wants to be called no earlier.

        One that has not may want to be called earlier: a poll puts off the time at which the application counts as
        stuck.
        """
        twin = twin_of(self.core)
        twin._is_calm = False
        commands, expected = super().commands(), twin.commands(now_ms=self.now_ms)
        assert state_of(tuple(commands), {}) == state_of(tuple(expected), {})
        due_ms, latest_ms = (each.deadline_ms(now_ms=self.now_ms) for each in (twin_of(self.core), twin))
        assert latest_ms is None or (due_ms is not None and self.now_ms < due_ms <= latest_ms)
        return commands


def test_a_usual_response_has_the_same_effect_in_both_forms() -> None:
    ShortAndGeneral.usual = 0
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        ShortAndGeneral,
        settings=settings(
            max_examples=60,
            stateful_step_count=25,
            deadline=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert ShortAndGeneral.usual > 60


class Keeper:
    def acknowledge(self, delivery: Any, type: int) -> None: ...

    def release_later(self, delivery: Any, after: Any) -> None: ...

    def lock_deadline(self, delivery: Any) -> float:
        return 0.0


@settings(max_examples=150, deadline=None)
@given(
    count=st.integers(1, decoding.SMALL_MAX + 2),
    base=st.sampled_from([0, 7, 2**40]),
    compression=st.sampled_from([Compression.NONE] * 4 + [Compression.GZIP]),
    batch_count=st.sampled_from([1, 1, 1, 2]),
    low=st.sampled_from([0, 0, 0, 1]),
    high=st.sampled_from([0, 0, 0, 1]),
    attributes=st.sampled_from([0, 0, 0, 0x08, 0x10, 0x20, 0x28]),
    damage=st.one_of(st.none(), st.none(), st.tuples(st.integers(0, 200), st.integers(0, 255))),
    is_sealed=st.booleans(),
    is_partly_lost=st.sampled_from([False, False, False, True]),
    check_crcs=st.booleans(),
)
def test_a_small_batch_is_opened_alike_in_both_ways(
    count: int,
    base: int,
    compression: Compression,
    batch_count: int,
    low: int,
    high: int,
    attributes: int,
    damage: tuple[int, int] | None,
    is_sealed: bool,
    is_partly_lost: bool,
    check_crcs: bool,
) -> None:
    data = b""
    for number in range(batch_count):
        one = bytearray(
            build_batch(
                [
                    NewRecord(b"k" if each % 2 else None, bytes([each]), (("h", b"v"),))
                    for each in range(count)
                ],
                compression=compression,
                base_offset=base + number * count,
            )
        )
        one[22] |= attributes
        seal(one)
        if damage is not None and damage[0] < len(one):
            one[damage[0]] = damage[1]
            if is_sealed and damage[0] > 16:
                seal(one)
        data += bytes(one)
    acquired = AcquiredRange(
        "t",
        0,
        first=base + min(low, count - 1),
        last=max(base + batch_count * count - 1 - high, base + min(low, count - 1)),
        delivery_count=1,
        topic_id=b"t" * 16,
        node_id=1,
        lock_ms=1,
        lock_until_ms=1,
    )
    acquired.apply(RangeCause.TAKE)
    if is_partly_lost and damage is None:
        acquired.apply(RangeCause.LOSE, acquired.last, acquired.last)
    arrival = Arrival("t", 0, b"t" * 16, [acquired], data)
    keeper = Keeper()
    short = decode(arrival, keeper, check_crcs=check_crcs)
    general = decode_into(Deliveries(arrival, keeper, Opened()), arrival, check_crcs=check_crcs)
    assert list(map(described, short.pieces)) == list(map(described, general.pieces))
    assert short.gaps == general.gaps


def described(piece: Any) -> Any:
    if not isinstance(piece, Readable):
        return repr(piece)
    return piece.acquired, [
        (one.key, one.value, one.offset, one.timestamp, tuple(one.headers), one.timestamp_type, one._acquired)
        for one in piece.records
    ]
