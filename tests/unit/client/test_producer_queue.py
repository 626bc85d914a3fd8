"""The batches of one partition: numbers, order, doubt. Scenarios that chance finds seldom."""

from headrace.client.errors import error_for
from headrace.client.producing.batch import Entry, Identity, ProducerBatch, ValueRun, run_cost
from headrace.client.producing.queue import PartitionQueue, SendOutcome
from headrace.client.settings import ProducerSettings
from headrace.wire.batches import Compression, read_header
from headrace.wire.errors import ErrorCode

LOST = error_for(ErrorCode.NETWORK_EXCEPTION)
OUT_OF_ORDER = error_for(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
TOO_LARGE = error_for(ErrorCode.MESSAGE_TOO_LARGE)


class Bench:
    """One queue with a batch for each record, and an identity."""

    def __init__(self, **settings: object) -> None:
        given = ProducerSettings.parse(
            bootstrap_servers="x:1", **{"batch_size": 1, "delivery_timeout_ms": 1_000, **settings}
        )
        self.outcomes: list[SendOutcome] = []
        self.queue = PartitionQueue("t", 0, given, self.outcomes)
        self.queue.renumber(Identity(7, 0))

    def put(self, *names: str, now_ms: float = 0) -> None:
        for name in names:
            self.queue.put(Entry("t", 0, None, name.encode(), (), 0, name, 10), 0, now_ms)

    def take(self) -> ProducerBatch:
        assert self.queue.ready_ms(0) is not None
        return self.queue.take()

    def steady(self) -> None:
        """The broker knows the producer: several batches may be in flight."""
        self.put("first")
        self.queue.acknowledged(self.take(), 0)
        self.outcomes.clear()

    def told(self) -> dict[str, int | None]:
        """What is known of records: None for sent, else the error's code."""
        return {
            str(token): outcome.error and outcome.error.code
            for outcome in self.outcomes
            for token in outcome.tokens
        }


def number_of(batch: ProducerBatch) -> tuple[int, int]:
    header = read_header(batch.encode(Compression.NONE, is_transactional=False))
    return header.producer_epoch, header.base_sequence


def test_one_batch_goes_alone_until_the_broker_knows_the_producer() -> None:
    bench = Bench()
    bench.put("a", "b", "c")
    first = bench.take()
    assert bench.queue.ready_ms(0) is None
    bench.queue.acknowledged(first, 0)
    assert [number_of(bench.take()), number_of(bench.take())] == [(0, 1), (0, 2)]


def test_retries_keep_their_numbers_and_their_order() -> None:
    bench = Bench()
    bench.steady()
    bench.put("a", "b", "c")
    a, b, c = bench.take(), bench.take(), bench.take()
    for batch in (b, c, a):
        bench.queue.lost(batch, LOST, 0)
    assert bench.take() is a
    assert bench.queue.ready_ms(0) is None, "one at a time after a failure"
    bench.queue.acknowledged(a, 1)
    assert [bench.take(), bench.take()] == [b, c]
    assert [number_of(one) for one in (a, b, c)] == [(0, 1), (0, 2), (0, 3)]


def test_a_batch_behind_a_refused_one_waits_for_it() -> None:
    bench = Bench()
    bench.steady()
    bench.put("a", "b")
    a, b = bench.take(), bench.take()
    bench.queue.refused(a, error_for(ErrorCode.NOT_ENOUGH_REPLICAS), 0)
    bench.queue.refused(b, OUT_OF_ORDER, 0)
    assert bench.take() is a
    assert number_of(a) == (0, 1)


def test_records_behind_one_that_failed_go_under_a_higher_epoch() -> None:
    bench = Bench()
    bench.steady()
    bench.put("a", "b")
    a, b = bench.take(), bench.take()
    bench.queue.refused(a, TOO_LARGE, 0)
    bench.queue.refused(b, OUT_OF_ORDER, 0)
    assert bench.queue.renumber(None)
    assert bench.take() is b
    assert number_of(b) == (1, 0)
    assert bench.told() == {"a": ErrorCode.MESSAGE_TOO_LARGE}


def test_the_numbers_of_a_last_batch_that_was_refused_are_used_again() -> None:
    bench = Bench()
    bench.steady()
    bench.put("a")
    bench.queue.refused(bench.take(), TOO_LARGE, 0)
    bench.put("b")
    assert bench.queue.renumber(None)
    assert number_of(bench.take()) == (0, 1)


def test_a_batch_in_doubt_is_resolved_under_its_old_number_before_any_is_renumbered() -> None:
    bench = Bench()
    bench.steady()
    bench.put("a", "b", "c")
    a, b, c = bench.take(), bench.take(), bench.take()
    bench.queue.lost(c, LOST, 0)  # the broker may have it, if it has forgotten the producer in between
    bench.queue.refused(a, TOO_LARGE, 0)
    bench.queue.refused(b, OUT_OF_ORDER, 0)
    assert bench.queue.renumber(None)
    assert bench.take() is c
    assert number_of(c) == (0, 3)
    bench.queue.acknowledged(c, 5)
    assert bench.queue.renumber(None)
    assert bench.take() is b
    assert number_of(b) == (1, 0)


def test_a_batch_in_doubt_behind_one_that_was_not_written_was_not_written_either() -> None:
    bench = Bench()
    bench.steady()
    bench.put("a", "b", "c")
    a, b, c = bench.take(), bench.take(), bench.take()
    bench.queue.lost(c, LOST, 0)
    bench.queue.refused(a, TOO_LARGE, 0)
    bench.queue.refused(b, OUT_OF_ORDER, 0)
    bench.queue.renumber(None)
    bench.queue.refused(bench.take(), OUT_OF_ORDER, 0)
    assert bench.queue.renumber(None)
    assert [number_of(bench.take())] == [(1, 0)]
    assert not bench.told().keys() & {"b", "c"}


def test_a_batch_in_doubt_that_the_broker_may_have_forgotten_fails_and_is_never_sent_again() -> None:
    """Three were written and not acknowledged; the broker restarted and knows only the last of them."""
    bench = Bench()
    bench.steady()
    bench.put("a", "b", "c")
    a, b, c = bench.take(), bench.take(), bench.take()
    for batch in (a, b, c):
        bench.queue.lost(batch, LOST, 0)
    bench.queue.refused(bench.take(), OUT_OF_ORDER, 0)
    bench.queue.renumber(None)
    bench.queue.refused(bench.take(), OUT_OF_ORDER, 0)
    bench.queue.renumber(None)
    assert bench.take() is c
    assert number_of(c) == (0, 3)
    bench.queue.acknowledged(c, 3)
    assert bench.told() == {
        "a": ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        "b": ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        "c": None,
    }


def test_a_batch_that_times_out_in_flight_fails_once_and_its_response_changes_nothing() -> None:
    bench = Bench()
    bench.steady()
    bench.put("a")
    bench.put("b", now_ms=500)
    a = bench.take()
    bench.queue.expire(1_000)
    assert bench.told() == {"a": ErrorCode.REQUEST_TIMED_OUT}
    bench.queue.acknowledged(a, 1)
    assert bench.told() == {"a": ErrorCode.REQUEST_TIMED_OUT}
    assert number_of(bench.take()) == (0, 2), "it was written: there is no hole"


def test_what_may_have_been_written_says_so_when_it_times_out() -> None:
    bench = Bench()
    bench.put("a", "b")
    bench.queue.lost(bench.take(), LOST, 0)
    bench.queue.expire(1_000)
    texts = [str(outcome.error) for outcome in bench.outcomes]
    assert "it may have been written" in texts[0]
    assert "it was not sent" in texts[1]


def test_a_batch_that_is_too_large_is_split_and_keeps_its_numbers() -> None:
    bench = Bench(batch_size=10_000)
    bench.put("a", "b", "c")
    bench.queue.refused(bench.take(), TOO_LARGE, 0)
    first = bench.take()
    assert (first.tokens, number_of(first)) == (["a"], (0, 0))
    bench.queue.acknowledged(first, 0)
    second = bench.take()
    assert (second.tokens, number_of(second)) == (["b", "c"], (0, 1))


def test_a_run_fills_the_open_batch_and_goes_on_in_the_next() -> None:
    bench = Bench(batch_size=60)
    bench.put("a")
    values = [b"0123456789"] * 7
    run = ValueRun("t", values, 5, ("many", 100, 7), run_cost(values))
    start = 0
    while start < 7:
        start += bench.queue.put_some(run, start, 0, 0)
    first = bench.take()
    assert (first.tokens, first.count, first.max_timestamp) == (["a", ("many", 100, 3)], 4, 5)
    bench.queue.acknowledged(first, 0)
    second, third = bench.take(), bench.take()
    assert (second.tokens, second.count, number_of(second)) == ([("many", 103, 3)], 3, (0, 4))
    assert (third.tokens, third.count, number_of(third)) == ([("many", 106, 1)], 1, (0, 7))
    assert second.cost + third.cost == run_cost(values[3:])


def test_a_value_larger_than_a_batch_has_one_for_itself() -> None:
    bench = Bench(batch_size=50)
    run = ValueRun("t", [b"x" * 100, b"y", b"z"], 0, ("many", 0, 3), 300)
    assert [bench.queue.put_some(run, start, 0, 0) for start in (0, 1)] == [1, 2]


def test_a_run_in_a_batch_that_is_too_large_is_split_with_it() -> None:
    bench = Bench(batch_size=10_000)
    run = ValueRun("t", [b"a", b"b", b"c"], 0, ("many", 7, 3), 9)
    bench.queue.put_some(run, 0, 0, 0)
    bench.queue.refused(bench.take(), TOO_LARGE, 0)
    first = bench.take()
    assert first.tokens == [("many", 7, 1)]
    bench.queue.acknowledged(first, 0)
    assert bench.take().tokens == [("many", 8, 1), ("many", 9, 1)]


def test_without_idempotence_there_are_no_numbers_and_one_batch_at_a_time() -> None:
    bench = Bench(acks="1")
    bench.steady()
    bench.put("a", "b")
    a = bench.take()
    assert bench.queue.ready_ms(0) is None
    assert number_of(a) == (-1, -1)
    bench.queue.lost(a, LOST, 0)
    assert bench.take() is a


def test_a_producer_that_has_used_up_its_epochs_asks_for_a_new_id() -> None:
    bench = Bench()
    bench.queue.replace_identity(Identity(7, 32_766))
    bench.put("a", "b")
    a = bench.take()
    bench.queue.refused(a, OUT_OF_ORDER, 0)
    assert not bench.queue.renumber(Identity(7, 0))
    assert bench.queue.renumber(Identity(8, 0))
    assert number_of(bench.take()) == (0, 0)


def test_a_topic_made_anew_is_written_from_the_first_number() -> None:
    bench = Bench()
    bench.steady()
    bench.put("a")
    bench.queue.lost(bench.take(), LOST, 0)
    bench.queue.recreated()
    assert bench.queue.renumber(None)
    assert number_of(bench.take()) == (1, 0)


def test_the_numbers_of_a_last_batch_in_doubt_are_not_used_again() -> None:
    """Once it has timed out, the broker may still read it from a connection that was given up."""
    bench = Bench()
    bench.steady()
    bench.put("a")
    bench.queue.lost(bench.take(), LOST, 0)
    bench.queue.expire(1_000)
    bench.put("b", now_ms=1_000)
    assert bench.queue.renumber(None)
    assert number_of(bench.take()) == (1, 0)


def test_after_a_batch_that_was_too_large_the_next_ones_are_smaller() -> None:
    bench = Bench(batch_size=10_000)
    bench.put(*(f"record {number}" for number in range(8)))
    bench.queue.refused(bench.take(), TOO_LARGE, 0)
    for _ in range(2):
        bench.queue.acknowledged(bench.take(), 0)
    bench.put(*(f"record {number}" for number in range(8)))
    assert len(bench.take().tokens) <= 4
