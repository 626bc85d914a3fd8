"""Deciding an acknowledgement: what a member's answers do to records it holds.

All answers for one partition stand or fall together. First the batches are checked against each other and the protocol
(InvalidRequest), then each offset against the window (InvalidRecordState, or InvalidRequest beyond its end); the first
offset that fails refuses them all. Offsets below the start are passed over: they have been settled by somebody.
"""

from collections.abc import Iterable, Iterator, Sequence

from headrace.share.changes import GAP_TYPE, AckBatch, AcknowledgeType, Change
from headrace.share.errors import InvalidRecordState, InvalidRequest
from headrace.share.holds import Hold
from headrace.share.limits import Limits
from headrace.share.offsets import OffsetRange
from headrace.share.states import TRANSITIONS, Cause, RecordState
from headrace.share.window import Window

ACQUIRED = RecordState.ACQUIRED
RELEASE, REJECT, RENEW = int(AcknowledgeType.RELEASE), int(AcknowledgeType.REJECT), int(AcknowledgeType.RENEW)

CAUSES: dict[int, Cause] = {
    GAP_TYPE: Cause.GAP,
    AcknowledgeType.ACCEPT: Cause.ACCEPT,
    AcknowledgeType.RELEASE: Cause.RELEASE,
    AcknowledgeType.REJECT: Cause.REJECT,
    AcknowledgeType.RENEW: Cause.RENEW,
}


def acknowledge(
    window: Window,
    member: str,
    batches: Sequence[AckBatch],
    *,
    limits: Limits,
    allows_renew: bool,
    now_ms: int,
) -> list[Change]:
    """See `SharePartition.acknowledge`."""
    check_batches(batches, allows_renew=allows_renew)
    changes: list[Change] = []
    settled_last = -1
    for first, last, types in batches:
        if last < window.start_offset:
            continue
        begin = max(first, window.start_offset)
        entries = _entries(window, first, begin, last)
        if begin == settled_last:
            raise InvalidRecordState("The offset cannot be acknowledged. The offset is not acquired.")
        is_uniform = len(types) == 1 or types.count(types[0]) == len(types)
        for entry in entries:
            _check_held(entry, member)
            part_first, part_last = max(begin, entry.first), min(last, entry.last)
            if is_uniform:
                changes.append(_answer(entry, part_first, part_last, types[0], limits, now_ms))
                continue
            for run_first, run_last in _runs(types, part_first - first, part_last - first):
                answer = types[run_first]
                changes.append(_answer(entry, first + run_first, first + run_last, answer, limits, now_ms))
        if types[-1] != RENEW:
            settled_last = last
    return changes


def check_batches(batches: Sequence[AckBatch], *, allows_renew: bool) -> None:
    """Refuses batches that no state of the partition could make good."""
    previous_last = -1
    types_max = RENEW if allows_renew else REJECT
    for first, last, types in batches:
        if first > last:
            raise InvalidRequest(f"Acknowledgement batch {first}-{last} ends before it begins.")
        if first < previous_last:
            raise InvalidRequest(f"Acknowledgement batch {first}-{last} overlaps the one before it.")
        if not types:
            raise InvalidRequest(f"Acknowledgement batch {first}-{last} has no acknowledge type.")
        if len(types) not in (1, last - first + 1):
            raise InvalidRequest(f"Acknowledgement batch {first}-{last} has {len(types)} acknowledge types.")
        if min(types) < 0 or max(types) > types_max:
            unfit = next(answer for answer in types if not 0 <= answer <= types_max)
            raise InvalidRequest(f"Acknowledge type {unfit} is not valid in this request.")
        previous_last = last


def exhausted_or(entry: OffsetRange, cause: Cause, limits: Limits) -> Cause:
    """`cause` gives the records back, unless they have had their last delivery."""
    if entry.delivery_count < limits.delivery_limit:
        return cause
    return Cause.EXHAUST_TO_DEAD_LETTERS if limits.dead_letters else Cause.EXHAUST


def let_go(entry: OffsetRange, first: int, last: int, cause: Cause) -> Change:
    """The change that ends a member's hold on first..last of a range, if there is one."""
    hold = None if entry.lock is None else entry.lock.hold
    return Change(
        first, last, TRANSITIONS[entry.state, cause], entry.delivery_count, cause, hold, None, entry.batch
    )


def _entries(window: Window, first: int, begin: int, last: int) -> Iterable[OffsetRange]:
    """The ranges that first..last names, from `begin` on; refuses offsets that are not in flight."""
    ranges = window.ranges
    tail = ranges.floor(last)
    if tail is not None and tail.first <= begin and tail.last >= last:
        return (tail,)
    if first == begin and ranges.floor(first) is None:
        raise InvalidRecordState(
            "Batch record not found. The request batch offsets are not found in the cache."
        )
    if tail is not None and tail.last < begin:
        raise InvalidRequest("Batch record not found. The first offset in request is past acquired records.")
    if tail is None or tail.last < last:
        raise InvalidRequest("Batch record not found. The last offset in request is past acquired records.")
    return ranges.over(begin, last)


def _check_held(entry: OffsetRange, member: str) -> None:
    lock = entry.lock
    if lock is not None and lock.holder == member:
        return
    if entry.is_whole_batch:
        if lock is None:
            raise InvalidRecordState(
                "The batch cannot be acknowledged. The batch is not in the acquired state."
            )
        raise InvalidRecordState("Member is not the owner of batch record")
    if lock is None:
        raise InvalidRecordState("The offset cannot be acknowledged. The offset is not acquired.")
    raise InvalidRecordState("Member is not the owner of offset")


def _answer(entry: OffsetRange, first: int, last: int, answer: int, limits: Limits, now_ms: int) -> Change:
    cause = CAUSES[answer]
    if answer == RENEW:
        if not limits.renew_enabled:
            raise InvalidRecordState("Renewing acquisition locks is not enabled for the group.")
        assert entry.lock is not None
        member, since_ms, renewals = entry.lock.hold
        hold, deadline_ms = Hold(member, since_ms, renewals + 1), now_ms + limits.lock_ms
        return Change(first, last, ACQUIRED, entry.delivery_count, cause, hold, deadline_ms, entry.batch)
    if answer == RELEASE:
        cause = exhausted_or(entry, cause, limits)
    elif answer == REJECT and limits.dead_letters:
        cause = Cause.REJECT_TO_DEAD_LETTERS
    return let_go(entry, first, last, cause)


def _runs(types: Sequence[int], first: int, last: int) -> Iterator[tuple[int, int]]:
    """Where equal types lie side by side in first..last."""
    begin = first
    for index in range(first + 1, last + 1):
        if types[index] != types[begin]:
            yield begin, index - 1
            begin = index
    yield begin, last
