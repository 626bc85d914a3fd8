"""Completed offsets: whatever the order of completions, commits and crashes, nothing is skipped or run for nothing."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.worker.completed import METADATA_CHARS, CompletedOffsets, DoneRange, decode

TOPIC = bytes(range(16))
CHARS = (60, 90, 140, 4_096)
"""Bounds of the metadata: the smallest has room for a few runs."""


def completed(ranges) -> set[int]:
    return {offset for each in ranges for offset in range(each.first, each.last + 1)}


class Partition(RuleBasedStateMachine):
    """A log with gaps; an owner that admits, completes, commits and dies; the next owner, who knows the last commit."""

    @initialize(
        start=st.integers(0, 2**40),
        gaps=st.sets(st.integers(0, 120)),
        chars=st.sampled_from(CHARS),
    )
    def begin(self, start, gaps, chars):
        self.log = [start + each for each in range(120) if each not in gaps]
        self.end = start + 120
        self.chars = chars
        self.offsets = CompletedOffsets(start)
        self.in_flight: set[int] = set()
        self.finished: set[int] = set()
        """By this owner, or by one before it, as far as was committed."""
        self.committed = (start, "")
        self.safe: set[int] = set()
        """What the last commit says is completed."""

    def upcoming(self) -> int | None:
        return next(
            (each for each in self.log if each >= self.offsets.position and not self.offsets.is_done(each)),
            None,
        )

    @rule()
    def admit(self):
        offset = self.upcoming()
        if offset is None:
            self.offsets.skip(self.end)
        elif self.offsets.may_admit(offset, self.chars):
            assert offset not in self.safe, "it was completed and committed"
            self.offsets.admit(offset)
            self.in_flight.add(offset)
        else:
            assert self.in_flight, "nothing could ever go on"

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def finish(self, data):
        offset = data.draw(st.sampled_from(sorted(self.in_flight)))
        self.offsets.finish(offset)
        self.in_flight.discard(offset)
        self.finished.add(offset)

    @rule()
    def commit(self):
        commit = self.offsets.encode(TOPIC, self.chars)
        assert len(commit.metadata) <= self.chars
        assert commit.end == self.offsets.position, "what was admitted fits, whatever was completed first"
        self.committed = (commit.offset, commit.metadata)
        self.safe = {each for each in self.log if self.offsets.is_done(each)}

    @rule(chars=st.sampled_from(CHARS))
    def crash(self, chars):
        """The next owner may have a broker with another bound."""
        offset, metadata = self.committed
        done = decode(metadata, TOPIC, offset)
        assert done is not None
        self.offsets = CompletedOffsets(offset, done)
        self.chars = max(chars, self.chars)
        self.in_flight = set()
        self.finished = set(self.safe)
        assert {each for each in self.log if self.offsets.is_done(each)} == self.safe

    @invariant()
    def what_is_not_finished_is_not_done(self):
        if not hasattr(self, "log"):
            return
        done = {each for each in self.log if self.offsets.is_done(each)}
        assert done == self.finished
        assert self.offsets.in_flight == len(self.in_flight)
        open_offsets = [each for each in self.log if each not in self.finished]
        assert self.offsets.start <= min(open_offsets, default=self.end)
        assert all(each >= self.offsets.start for each in self.in_flight)


Partition.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestPartition = Partition.TestCase


@given(
    start=st.integers(0, 2**62),
    lengths=st.lists(st.tuples(st.integers(1, 2**20), st.integers(1, 2**20)), max_size=300),
)
def test_the_metadata_say_what_is_completed(start, lengths):
    ranges, end = [], start
    for gap, length in lengths:
        ranges.append(DoneRange(end + gap, end + gap + length - 1))
        end += gap + length
    offsets = CompletedOffsets(start, ranges)
    assert offsets.done == ranges
    whole = offsets.encode(TOPIC, chars=10**6)
    assert decode(whole.metadata, TOPIC, whole.offset) == ranges
    part = offsets.encode(TOPIC)
    assert len(part.metadata) <= METADATA_CHARS
    kept = decode(part.metadata, TOPIC, part.offset)
    assert kept == ranges[: len(kept)], "the last are left out"
    assert kept == ranges or part.end == ranges[len(kept)].first


@given(st.sets(st.integers(1, 3_000)))
def test_dense_offsets_are_a_bitmap_and_come_back(numbers):
    offsets = CompletedOffsets(0)
    for _ in range(3_001):
        offsets.admit(offsets.position)
    for number in numbers:
        offsets.finish(number)
    commit = offsets.encode(TOPIC)
    assert completed(decode(commit.metadata, TOPIC, commit.offset)) == numbers


@settings(deadline=None)
@given(st.lists(st.integers(0, 600), max_size=80), st.sampled_from(CHARS))
def test_a_bound_is_kept_for_sparse_windows(order, chars):
    """One record is stuck, and far more complete than a bitmap could hold."""
    offsets = CompletedOffsets(0)
    offsets.admit(0)
    running: list[int] = []
    for place in order:
        offset = offsets.position + place * 1_000
        if offsets.may_admit(offset, chars):
            offsets.admit(offset)
            running.append(offset)
        elif running:
            offsets.finish(running.pop(place % len(running)))
        commit = offsets.encode(TOPIC, chars)
        assert commit.end == offsets.position
        assert len(commit.metadata) <= chars


def test_any_24000_offsets_fit():
    offsets = CompletedOffsets(10**12)
    while offsets.may_admit(offsets.position):
        offsets.admit(offsets.position)
    assert offsets.in_flight > 24_000
    for offset in range(offsets.start + 1, offsets.position, 2):
        offsets.finish(offset)
    commit = offsets.encode(TOPIC)
    assert (len(commit.metadata) <= METADATA_CHARS, commit.end) == (True, offsets.position)


def test_one_stuck_record_does_not_bound_what_completes_in_order_behind_it():
    offsets = CompletedOffsets(0)
    offsets.admit(0)
    for offset in range(1, 300_000):
        assert offsets.may_admit(offset)
        offsets.admit(offset)
        offsets.finish(offset)
    assert offsets.start == 0
    assert len(offsets.encode(TOPIC).metadata) < 60


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:-4],
        lambda text: text.replace("headrace1.", "headrace2."),
        lambda text: text[:20] + ("A" if text[20] != "A" else "B") + text[21:],
        lambda text: "someone else's note",
        lambda text: "headrace1.",
        lambda text: "headrace1.é",
    ],
)
def test_metadata_that_are_not_ours_are_not_believed(change):
    offsets = CompletedOffsets(7, [DoneRange(9, 12)])
    text = offsets.encode(TOPIC).metadata
    assert decode(text, TOPIC, 7) == [DoneRange(9, 12)]
    assert decode(change(text), TOPIC, 7) is None


def test_metadata_of_another_offset_or_topic_are_not_believed():
    text = CompletedOffsets(7, [DoneRange(9, 12)]).encode(TOPIC).metadata
    assert decode(text, TOPIC, 8) is None
    assert decode(text, bytes(16), 7) is None


@pytest.mark.parametrize("text", ["", None])
def test_no_metadata_means_that_nothing_beyond_is_completed(text):
    assert decode(text, TOPIC, 7) == []
