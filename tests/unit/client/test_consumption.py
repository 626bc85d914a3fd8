"""Between the buffer and the application: what is handed out, accepted, insisted on, raised and told."""

import gc
import json
import sys
import threading
import weakref
from typing import Any

import pytest

from headrace.client import decoding
from headrace.client.consumption import Consumption
from headrace.client.core.acknowledgements import Settled
from headrace.client.delivery import AcknowledgeType, Delivery, TopicPartition
from headrace.client.errors import (
    CorruptRecordError,
    IllegalStateError,
    RecordDeserializationError,
    UnsupportedVersionError,
    error_for,
)
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.share_acknowledge_response import (
    PartitionData as AcknowledgedPartition,
)
from headrace.wire.messages.share_acknowledge_response import (
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from headrace.wire.messages.share_fetch_response import AcquiredRecords, PartitionData
from headrace.wire.records import NewRecord, build_batch
from tests.unit.client.core.test_member import LOCK_MS, TOPIC_ID, Driver


class App:
    """A consumption on a core without brokers: `fill` plays their part."""

    def __init__(self, *, is_explicit: bool = False, on_lost: Any = None, **options: Any) -> None:
        mode = "explicit" if is_explicit else "implicit"
        settings = {name: options.pop(name) for name in list(options) if name.startswith("max_")}
        self.driver = Driver(1, share_acknowledgement_mode=mode, **settings)
        self.core = self.driver.core
        self.lock = threading.RLock()
        self.consumption = Consumption(
            self.core, self.core.settings, lock=self.lock, on_lost=on_lost, **options
        )
        self.driver.poll(0)

    def fill(self, *values: str, base: int = 0, damage: bool = False, delivery_count: int = 1) -> None:
        data = bytearray(
            build_batch([NewRecord(None, value.encode(), (), 0) for value in values], base_offset=base)
        )
        if damage:
            data[-1] ^= 1
        acquired = AcquiredRecords(
            first_offset=base, last_offset=base + len(values) - 1, delivery_count=delivery_count
        )
        part = PartitionData(partition_index=0, acquired_records=[acquired], records=bytes(data))
        self.driver.answer(1, part)

    def take(self, *, is_seen: bool = True) -> list[Delivery]:
        """A poll that does not wait; `is_seen`: and that returns."""
        if self.consumption.has_unseen:
            taken = self.consumption.take_unseen(now_ms=0)
        else:
            self.consumption.begin()
            taken = self.consumption.take(now_ms=0)
        if is_seen:
            self.consumption.seen = len(taken)
        return taken

    def sweep(self) -> list[tuple[int, int, int]]:
        """What goes to the broker now."""
        self.core._holdings.send_answers()
        return [(ack.first, ack.last, ack.state) for ack in self.core._holdings.lanes[1].all_waiting()]

    def answer(self, code: int = 0) -> None:
        """Sends what waits, and answers it."""
        self.driver.stop_asking()
        self.driver.sends(0)
        part = AcknowledgedPartition(partition_index=0, error_code=code)
        topic = ShareAcknowledgeTopicResponse(topic_id=TOPIC_ID, partitions=[part])
        response = ShareAcknowledgeResponse(responses=[topic], acquisition_lock_timeout_ms=LOCK_MS)
        self.core.responded(1, response, now_ms=0)
        self.tell()

    def answer_of_flight(self) -> None:
        """Answers what is on its way."""
        part = AcknowledgedPartition(partition_index=0)
        topic = ShareAcknowledgeTopicResponse(topic_id=TOPIC_ID, partitions=[part])
        response = ShareAcknowledgeResponse(responses=[topic], acquisition_lock_timeout_ms=LOCK_MS)
        self.core.responded(1, response, now_ms=0)
        self.tell()

    def expire(self) -> None:
        """The locks end."""
        self.driver.sends(LOCK_MS)
        self.tell()

    def tell(self) -> None:
        settled, lost = list(self.driver.settled), list(self.driver.lost)
        self.driver.settled.clear()
        self.driver.lost.clear()
        self.consumption.lost(lost)
        self.consumption.settled(settled)


def test_an_implicit_poll_accepts_the_last_one() -> None:
    app = App()
    app.fill("a", "b")
    assert [one.value for one in app.take()] == [b"a", b"b"]
    assert app.sweep() == []
    assert app.take() == []
    assert app.sweep() == [(0, 1, 1)]


def test_an_explicit_poll_insists_on_answers() -> None:
    app = App(is_explicit=True)
    app.fill("a", "b")
    first, second = app.take()
    first.accept()
    with pytest.raises(IllegalStateError, match="All records must be acknowledged"):
        app.take()
    second.reject("why")
    assert app.take() == []
    assert app.sweep() == [(0, 0, 1), (1, 1, 3)]
    assert second.reason == "why"


def test_records_held_over_polls_need_no_answer() -> None:
    told: list[bool] = []
    app = App(is_explicit=True, max_unacknowledged=5, wake=lambda: told.append(True))
    app.fill("a", "b")
    first, second = app.take()
    assert app.take() == []
    second.accept()
    first.accept()
    assert told == [True]  # once until it is swept


@pytest.mark.parametrize("type", [0, 5, -1])
def test_an_unknown_acknowledgement_is_refused(type: int) -> None:
    app = App(is_explicit=True)
    app.fill("a")
    (delivery,) = app.take()
    with pytest.raises(ValueError, match="must be a member of AcknowledgeType, got "):
        app.consumption.acknowledge(delivery, type)


def test_what_is_held_over_polls_is_announced_also_behind_a_bad_record() -> None:
    told: list[bool] = []
    app = App(is_explicit=True, max_unacknowledged=5, value_deserializer=int, wake=lambda: told.append(True))
    app.fill("1", "x")
    (first,) = app.take()
    with pytest.raises(RecordDeserializationError):
        app.take()
    assert told == []  # acknowledge_offset may still say otherwise
    first.accept()
    assert told == [True]


def test_a_poll_for_fewer_leaves_other_arrivals_in_the_buffer() -> None:
    app = App()
    data = build_batch([NewRecord(None, b"a", (), 0)], base_offset=0)
    acquired = [AcquiredRecords(first_offset=0, last_offset=0, delivery_count=1)]
    app.driver.answer(
        1,
        *(PartitionData(partition_index=n, acquired_records=acquired, records=data) for n in (0, 1)),
    )
    assert [one.partition for one in app.consumption.take(now_ms=0, records_wanted=1)] == [0]


def test_an_answer_after_closing_is_refused() -> None:
    app = App(is_explicit=True)
    app.fill("a")
    (delivery,) = app.take()
    app.consumption.close()
    with pytest.raises(IllegalStateError, match="closed"):
        delivery.accept()


def test_a_broker_without_renewal_is_named() -> None:
    app = App(is_explicit=True)
    app.fill("a")
    (delivery,) = app.take()
    app.core.connected(1, is_old=True)
    with pytest.raises(UnsupportedVersionError, match="RENEW"):
        delivery.renew()
    delivery.accept()


def test_a_renewed_record_comes_back_and_pauses_the_fetches() -> None:
    app = App(is_explicit=True)
    app.fill("a", "b")
    first, second = app.take()
    first.renew()
    second.accept()
    assert app.take() == []
    assert app.core.is_paused
    app.sweep()
    app.answer()
    assert not app.core.is_paused
    assert app.consumption.take(now_ms=0) == [first]


def test_a_renewal_of_a_lost_lock_does_not_pause_for_ever() -> None:
    app = App(is_explicit=True)
    app.fill("a")
    (delivery,) = app.take()
    delivery.renew()
    app.core.failed(1, error_for(ErrorCode.NETWORK_EXCEPTION), now_ms=0)
    app.sweep()
    app.tell()
    assert not app.core.is_paused
    assert delivery.is_lost


def test_lost_records_are_told_with_their_deliveries() -> None:
    lost: list[Any] = []
    app = App(is_explicit=True, on_lost=lambda found, error: lost.append((found, error)))
    app.fill("a", "b")
    first, second = app.take()
    first.accept()
    app.sweep()
    app.expire()
    ((found, error),) = lost
    assert found == [second]
    assert "1000 ms" in str(error)


def test_an_acquisition_that_is_lost_in_several_pieces_is_told_whole() -> None:
    lost: list[Delivery] = []
    app = App(is_explicit=True, on_lost=lambda found, error: lost.extend(found))
    app.fill("a", "b", "c")
    first, second, third = app.take()
    second.accept()
    app.sweep()
    app.answer()
    app.expire()
    assert lost == [first, third]


@pytest.mark.parametrize("deserializer", [None, bytes.decode], ids=["plain", "deserialized"])
def test_records_that_are_lost_while_they_are_decoded_are_not_handed_out(deserializer: Any) -> None:
    app = App(is_explicit=True, value_deserializer=deserializer)
    app.fill("a", "b")
    take = app.core.take

    def take_and_lose(*arguments: Any, **keywords: Any) -> Any:
        arrivals = take(*arguments, **keywords)
        app.expire()
        return arrivals

    app.core.take = take_and_lose  # type: ignore[method-assign]
    assert app.take() == []
    assert app.take() == []


def test_a_failing_on_lost_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    app = App(is_explicit=True, on_lost=lambda found, error: 1 / 0)
    app.fill("a")
    app.take()
    app.expire()
    assert "on_lost has failed" in caplog.text


def test_bad_records_are_raised_in_their_place() -> None:
    app = App(value_deserializer=json.loads)
    app.fill("1", "?", "3", "!", "5")
    assert [one.value for one in app.take()] == [1]
    with pytest.raises(RecordDeserializationError, match="offset 1"):
        app.take()
    assert [one.value for one in app.take()] == [3]
    with pytest.raises(RecordDeserializationError, match="offset 3"):
        app.take()
    assert [one.value for one in app.take()] == [5]
    app.take()
    assert sorted(app.sweep()) == [(0, 0, 1), (1, 1, 2), (2, 2, 1), (3, 3, 2), (4, 4, 1)]


def test_an_implicit_poll_does_not_accept_what_it_has_not_handed_out() -> None:
    app = App(value_deserializer=json.loads)
    app.fill("1", "?", "3")
    app.take()
    app.consumption.accept_seen()
    assert app.sweep() == [(0, 0, 1)]


def test_the_answer_to_a_bad_record_can_be_changed_also_in_implicit_mode() -> None:
    app = App(value_deserializer=json.loads)
    app.fill("?", "2")
    with pytest.raises(RecordDeserializationError) as caught:
        app.take()
    bad = caught.value.delivery
    assert app.sweep() == [], "acknowledge_offset may say otherwise before the next poll"
    app.consumption.acknowledge_offset(bad.topic, bad.partition, bad.offset, AcknowledgeType.REJECT)
    assert app.sweep() == [(0, 0, 3)]
    app.take()
    with pytest.raises(IllegalStateError, match="Implicit"):
        app.consumption.acknowledge_offset("t", 0, 1, AcknowledgeType.REJECT)


def test_an_offset_that_nobody_holds_cannot_be_acknowledged() -> None:
    with pytest.raises(IllegalStateError, match="cannot be acknowledged"):
        App(is_explicit=True).consumption.acknowledge_offset("t", 0, 1)


def test_a_damaged_batch_is_rejected_and_raised() -> None:
    app = App(is_explicit=True)
    app.fill("a", "b", damage=True)
    with pytest.raises(CorruptRecordError, match="offsets 0 to 1"):
        app.take()
    app.take()
    assert app.sweep() == [(0, 1, 3)]


def test_renew_is_no_policy_for_bad_records() -> None:
    with pytest.raises(ValueError, match="RENEW"):
        App(on_deserialization_error=AcknowledgeType.RENEW)


def test_an_interrupted_poll_gives_everything_back() -> None:
    app = App(is_explicit=True)
    app.fill("a", "b")

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    app.consumption._decode = interrupt  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        app.take()
    del app.consumption._decode
    assert [one.offset for one in app.take()] == [0, 1]


def test_a_deserializer_that_is_interrupted_loses_nothing() -> None:
    has_come: list[bytes] = []

    def upper(data: bytes) -> bytes:
        has_come.append(data)
        if len(has_come) == 2:
            raise KeyboardInterrupt
        return data.upper()

    app = App(value_deserializer=upper)
    app.fill("a", "b", "c")
    with pytest.raises(KeyboardInterrupt):
        app.take()
    app.consumption.accept_seen()
    assert app.sweep() == []
    assert [one.value for one in app.take()] == [b"A", b"B", b"C"]
    app.consumption.accept_seen()
    assert app.sweep() == [(0, 2, 1)]


@pytest.mark.parametrize("deserializer", [None, bytes.decode], ids=["plain", "deserialized"])
@pytest.mark.parametrize("is_explicit", [False, True], ids=["implicit", "explicit"])
def test_a_record_counts_as_seen_only_when_poll_has_returned_it(is_explicit: bool, deserializer: Any) -> None:
    app = App(is_explicit=is_explicit, value_deserializer=deserializer)
    app.fill("a", "b")
    assert app.take(is_seen=False)  # Ctrl+C before the poll returns
    app.consumption.accept_seen()
    assert app.sweep() == [], "nobody has seen them"
    again = app.take()
    assert [one.offset for one in again] == [0, 1]
    if is_explicit:
        for one in again:
            one.accept()
    app.take()
    assert app.sweep() == [(0, 1, 1)]


def interrupted(action: Any, line: int, error: type[BaseException]) -> Any:
    """Runs the action up to that line of the client's code."""
    left = [line]

    def trace(frame: Any, event: str, _: Any) -> Any:
        if "headrace/client" not in frame.f_code.co_filename:
            return None
        if event == "line":
            left[0] -= 1
            if left[0] < 0:
                sys.settrace(None)
                raise error
        return trace

    sys.settrace(trace)
    try:
        return action()
    finally:
        sys.settrace(None)


@pytest.mark.parametrize("deserializer", [None, bytes.decode], ids=["plain", "deserialized"])
@pytest.mark.parametrize("is_explicit", [False, True], ids=["implicit", "explicit"])
def test_a_poll_may_be_interrupted_at_every_line(is_explicit: bool, deserializer: Any) -> None:
    """As by a signal handler that raises: each record is seen once all the same, and accepted only if it was seen.

    An ordinary exception inside a deserializer cannot be told from one of its own: the record is released for it.
    """

    class Alarm(Exception if deserializer is None else BaseException):  # type: ignore[misc]
        pass

    for line in range(10_000):
        app = App(is_explicit=is_explicit, value_deserializer=deserializer)
        app.fill("a", "b", "c")
        was_interrupted = False
        try:
            seen = interrupted(app.take, line, Alarm)
        except Alarm:
            was_interrupted, seen = True, []
        app.consumption.accept_seen()
        assert app.sweep() == ([] if was_interrupted or is_explicit else [(0, 2, 1)]), f"at line {line}"
        if was_interrupted:
            seen = app.take()
        assert [one.offset for one in seen] == [0, 1, 2], f"at line {line}"
        if is_explicit:
            for one in seen:
                one.accept()
        assert app.take() == []
        assert app.sweep() == [(0, 2, 1)], f"at line {line}"
        if not was_interrupted:
            assert line > 50
            return
    raise AssertionError("it never ended")


def test_a_batch_that_does_not_fit_into_memory_is_kept_for_the_next_poll(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = App()
    app.fill("a", "b")

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(decoding, "read_records", fail)
        for _ in range(3):
            with pytest.raises(MemoryError):
                app.take()
    assert app.sweep() == [], "nothing is rejected, released or accepted"
    assert [one.value for one in app.take()] == [b"a", b"b"]


def test_an_answer_may_follow_a_renewal_before_its_response() -> None:
    app = App(is_explicit=True, max_unacknowledged=5)
    app.fill("a")
    (delivery,) = app.take()
    delivery.renew()
    app.sweep()
    app.driver.stop_asking()
    app.driver.sends(0)
    delivery.accept()
    app.answer_of_flight()
    assert app.sweep() == [(0, 0, 1)]


def test_a_record_that_was_renewed_and_accepted_does_not_come_back() -> None:
    app = App(is_explicit=True)
    app.fill("a")
    (delivery,) = app.take()
    delivery.renew()
    app.sweep()
    app.driver.stop_asking()
    app.driver.sends(0)
    delivery.accept()
    app.answer_of_flight()
    assert app.take() == []
    assert app.sweep() == [(0, 0, 1)]


def test_a_closed_consumption_lets_go_of_its_deliveries() -> None:
    """A delivery is spared by the collector of cycles, so nothing that it refers to may refer to it."""
    app = App()
    app.fill("a", "b")
    app.take()
    app.consumption.close()
    app.consumption.forget()
    freed = weakref.ref(app.consumption)
    del app
    gc.collect()
    assert freed() is None


def test_what_a_poll_has_raised_for_is_answered_when_the_consumer_closes() -> None:
    app = App(value_deserializer=json.loads, on_deserialization_error=AcknowledgeType.REJECT)
    app.fill("?")
    with pytest.raises(RecordDeserializationError):
        app.take()
    app.consumption.close()
    assert app.sweep() == [(0, 0, 3)]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
def test_an_on_lost_that_ends_the_program_is_not_swallowed(error: type[BaseException]) -> None:
    def end(*_: object) -> None:
        raise error

    app = App(is_explicit=True, on_lost=end)
    app.fill("a")
    app.take()
    with pytest.raises(error):
        app.expire()


def test_a_callback_that_is_interrupted_hears_of_the_rest_later() -> None:
    told: list[Any] = []

    def callback(offsets: Any, error: Any) -> None:
        told.append(set(*offsets.values()))
        if len(told) == 1:
            raise KeyboardInterrupt

    app = App(is_explicit=True)
    app.consumption.callback = callback
    app.fill("a", "b")
    first, second = app.take()
    acquired = first._grant.acquired
    refused = error_for(ErrorCode.INVALID_RECORD_STATE)
    app.consumption.settled([Settled(acquired, 0, 0, 1, None), Settled(acquired, 1, 1, 1, refused)])
    with pytest.raises(KeyboardInterrupt):
        app.consumption.run_callbacks()
    app.consumption.run_callbacks()
    assert told == [{0}, {1}]
    second.accept()  # the callback is over


def test_after_callbacks_that_were_interrupted_at_any_line_the_consumer_goes_on() -> None:
    """A flag that says that the callback runs would stay set."""
    for line in range(1_000):
        told: list[Any] = []
        app = App(is_explicit=True)
        app.consumption.callback = lambda offsets, error, told=told: told.append(set(*offsets.values()))
        app.fill("a", "b")
        first, second = app.take()
        acquired = first._grant.acquired
        app.consumption.settled([Settled(acquired, 0, 0, 1, None)])
        try:
            interrupted(app.consumption.run_callbacks, line, KeyboardInterrupt)
        except KeyboardInterrupt:
            app.consumption.refuse_in_callback()
            second.accept()
            assert app.sweep() == [(1, 1, AcknowledgeType.ACCEPT)], f"at line {line}"
        else:
            assert told == [{0}]
            assert line > 10
            return
    raise AssertionError("it never ended")


def test_while_a_callback_runs_only_its_own_thread_is_refused() -> None:
    app = App(is_explicit=True)
    app.fill("a", "b")
    first, second = app.take()
    refusals: list[Exception] = []

    def callback(offsets: Any, error: Any) -> None:
        try:
            first.accept()
        except IllegalStateError as refused:
            refusals.append(refused)
        other = threading.Thread(target=second.accept)
        other.start()
        other.join()

    app.consumption.callback = callback
    app.consumption.settled([Settled(first._grant.acquired, 0, 0, 1, None)])
    app.consumption.run_callbacks()
    assert len(refusals) == 1
    assert app.sweep() == [(1, 1, AcknowledgeType.ACCEPT)]


def test_results_of_two_deliveries_of_a_record_are_told_one_after_the_other() -> None:
    told: list[Any] = []
    app = App(is_explicit=True)
    app.consumption.callback = lambda offsets, error: told.append((offsets, error))
    app.fill("a", "b")
    first, _ = app.take()
    acquired = first._grant.acquired
    results = [Settled(acquired, 0, 1, 2, None), Settled(acquired, 0, 0, 1, None)]
    app.consumption.settled(results)
    app.consumption.run_callbacks()
    partition = TopicPartition("t", 0)
    assert told == [({partition: {0, 1}}, None), ({partition: {0}}, None)]


def test_the_callback_hears_of_each_partition_with_its_error() -> None:
    told: list[Any] = []
    app = App()
    app.consumption.callback = lambda offsets, error: told.append((offsets, error))
    app.fill("a", "b", "c")
    app.take()
    app.take()
    app.sweep()
    app.answer()
    assert told == []
    app.consumption.run_callbacks()
    assert told == [({TopicPartition("t", 0): {0, 1, 2}}, None)]


def test_a_delivery_shows_what_it_is() -> None:
    app = App()
    app.fill("a")
    (delivery,) = app.take()
    assert repr(delivery) == "Delivery(t-0@0, delivery_count=1, key=None, value=b'a')"
    assert (delivery.topic, delivery.partition, delivery.timestamp, delivery.timestamp_type) == ("t", 0, 0, 0)


def test_the_callback_is_told_nothing_of_records_that_nobody_has_seen() -> None:
    told: list[Any] = []
    app = App()
    app.consumption.callback = lambda offsets, error: told.append(offsets)
    app.fill("a", "b")
    app.core.subscribe(["other"], now_ms=0)  # which releases what waits
    app.answer()
    app.consumption.run_callbacks()
    assert told == []


class RegistryDeserializer:
    """Called as confluent-kafka calls those of its schema registry."""

    def __call__(self, data: bytes, ctx: Any = None) -> Any:
        return ctx.topic, ctx.field, list(ctx.headers), data


def test_a_deserializer_that_takes_a_context_gets_it() -> None:
    app = App(value_deserializer=RegistryDeserializer())
    app.fill("a")
    (delivery,) = app.take()
    assert delivery.value == ("t", "value", [], b"a")


def two(data: bytes, where: Any) -> bytes:
    return data + where.field.encode()


@pytest.mark.parametrize(
    ("deserializer", "expected"),
    [(bytes.decode, "1"), (int, 1), (json.loads, 1), (two, b"1value"), (lambda data: data * 2, b"11")],
)
def test_only_a_second_argument_that_is_meant_for_it_gets_the_context(
    deserializer: Any, expected: Any
) -> None:
    app = App(value_deserializer=deserializer)
    app.fill("1")
    assert [one.value for one in app.take()] == [expected]


def test_an_iteration_hands_out_nothing_whose_lock_has_ended() -> None:
    """The application was busy with the first record for longer than the lock of the others."""
    app = App()
    app.fill("a", "b", "c")
    app.take(is_seen=False)
    first = app.consumption.next_unseen(now_ms=LOCK_MS - 1)
    assert first is not None
    assert first.value == b"a"
    assert app.consumption.next_unseen(now_ms=LOCK_MS) is None
    assert not app.consumption.has_unseen
    assert app.take() == []
    assert app.sweep() == []


def test_an_iteration_passes_over_what_was_lost_meanwhile() -> None:
    app = App()
    app.fill("a", "b")
    app.take(is_seen=False)
    app.expire()
    assert app.consumption.next_unseen(now_ms=1) is None
    assert not app.consumption.has_unseen


def test_records_of_a_poll_that_was_broken_off_are_not_handed_out_after_their_lock() -> None:
    app = App()
    app.fill("a", "b")
    app.take(is_seen=False)
    assert app.consumption.take_unseen(now_ms=LOCK_MS) == []
    assert app.sweep() == []


def test_records_that_were_decoded_by_a_poll_broken_off_are_not_handed_out_after_their_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = App()
    app.fill("a", "b")
    with monkeypatch.context() as patch:
        patch.setattr(app.consumption, "_hand_out", lambda now_ms: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            app.take()
    assert app.consumption.take(now_ms=LOCK_MS) == []
    assert app.sweep() == []


def test_a_renewed_record_is_not_handed_out_again_after_its_lock() -> None:
    app = App(is_explicit=True)
    app.fill("a")
    (only,) = app.take()
    only.renew()
    app.core._holdings.send_answers()
    app.answer()
    assert app.consumption.take(now_ms=LOCK_MS) == []
    assert only.is_lost
