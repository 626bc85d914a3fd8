"""Why a record is, or is not, being delivered to a share group: one function for page, command line and JSON API.

    explain(view, 17, delivery_limit=5, names={"FAn2...": "mailer@web-3"}, members=2)
    # Explanation("waiting", "Behind the window, which has been full since 03:12:09 UTC (2,000 of 2,000 records). Its
    #  oldest record, offset 17, is held by mailer@web-3 for 412 s, renewed 13 times; its lock ends in 18 s.")

Pure. The view is live where the embedded broker tells it, and else as written to `__share_group_state`, which knows
nothing of locks: then the text says what is not known.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.share.holds import PastHold
from headrace.share.states import RecordState
from headrace.share.view import SharePartitionState, StateRun

UNKNOWN = "unknown"
ONLY_THE_BROKER = "Only the broker knows locks."
FINAL = (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


@dataclass(frozen=True, slots=True)
class Explanation:
    state: str
    """available, acquired, acknowledged, archiving, archived; settled, waiting, undecided, not there, unknown"""
    text: str
    blocker: int | None = None
    """The offset that the record waits for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    view: SharePartitionState
    offset: int
    delivery_limit: int | None
    names: Mapping[str, str]
    members: int | None
    readers: int | None

    @property
    def of_limit(self) -> str:
        return f" of at most {self.delivery_limit}" if self.delivery_limit else ""

    @property
    def nobody(self) -> str:
        if self.members == 0:
            return " The group has no members now."
        return " No member of the group reads this partition now." if self.readers == 0 else ""


def explain(
    view: SharePartitionState,
    offset: int,
    *,
    delivery_limit: int | None = None,
    names: Mapping[str, str] | None = None,
    members: int | None = None,
    readers: int | None = None,
) -> Explanation:
    """`names` has the client id and host of members by their ids; `members` is how many there are, and `readers` how
    many of them have this partition.
    """
    ask = _Question(
        view=view,
        offset=offset,
        delivery_limit=delivery_limit,
        names=names or {},
        members=members,
        readers=readers,
    )
    if offset >= view.log_end_offset:
        return Explanation(
            "not there", f"The log ends at {view.log_end_offset}: there is no such record yet."
        )
    if offset < view.log_start_offset:
        text = f"The log starts at {view.log_start_offset}: retention or DeleteRecords removed this record."
        return Explanation("not there", text)
    if view.start_offset is None:
        return Explanation("undecided", _undecided(view) + ask.nobody)
    if offset < view.start_offset:
        text = f"Below the start offset {view.start_offset}: it was accepted or archived, or is from before the group."
        return Explanation("settled", text)
    run = run_of(view, offset)
    if run is not None:
        return _in_window(ask, run)
    return _behind_window(ask) if offset >= (view.next_offset or 0) else _not_written(ask)


def why_full(
    view: SharePartitionState, *, names: Mapping[str, str] | None = None, members: int | None = None
) -> str | None:
    """What keeps a full window from moving on; None where it is not full, or where that is not known."""
    if not view.is_live or view.window_max is None or view.in_flight < view.window_max:
        return None
    ask = _Question(
        view=view,
        offset=view.next_offset or 0,
        delivery_limit=None,
        names=names or {},
        members=members,
        readers=None,
    )
    return f"The window {_full_window(ask)[0]}"


def _undecided(view: SharePartitionState) -> str:
    if view.is_live:
        return "The group has no start offset here yet: the first fetch of a member sets it."
    return (
        "The group has no written state here: no member has fetched yet, or members hold records and have not "
        "acknowledged one. Only the broker knows which."
    )


def run_of(view: SharePartitionState, offset: int) -> StateRun | None:
    return next((run for run in view.runs if run.first <= offset <= run.last), None)


def _in_window(ask: _Question, run: StateRun) -> Explanation:
    state = run.state.name.lower()
    match run.state:
        case RecordState.ACQUIRED:
            return Explanation(state, f"Delivery {run.delivery_count}{ask.of_limit}: {_held(ask, run)}.")
        case RecordState.AVAILABLE:
            return _available(ask, run)
        case RecordState.ACKNOWLEDGED:
            return Explanation(
                state, "Accepted. It leaves the window when all records before it are settled."
            )
        case RecordState.ARCHIVING:
            return Explanation(state, "Given up: its copy is on the way to the dead-letter topic.")
        case RecordState.ARCHIVED:
            return Explanation(state, _archived(ask, run))
    raise AssertionError(run.state)


def _available(ask: _Question, run: StateRun) -> Explanation:
    """A record that was written as available may have been acquired since: that is not written down."""
    if ask.view.is_live or ask.members == 0:
        before = (
            f" It was delivered {_times(run.delivery_count)}{ask.of_limit}." if run.delivery_count else ""
        )
        return Explanation("available", f"The next member that fetches gets it.{before}{ask.nobody}")
    before = (
        f", after it was delivered {_times(run.delivery_count)}{ask.of_limit}" if run.delivery_count else ""
    )
    text = (
        f"It was written as available{before}. It waits for a fetch, or a member holds it. {ONLY_THE_BROKER}"
    )
    return Explanation(UNKNOWN, text + ask.nobody)


def _archived(ask: _Question, run: StateRun) -> str:
    count = f"{run.delivery_count}{ask.of_limit}"
    if ask.delivery_limit and run.delivery_count >= ask.delivery_limit:
        return f"Given up: rejected, or delivered too often ({count})."
    # What Kafka archives without asking a member has the delivery count of its batch, too.
    return (
        f"Rejected by a member, in delivery {count}; or nothing that a member is given: a marker or an aborted record "
        "of a transaction."
    )


def _behind_window(ask: _Question) -> Explanation:
    view = ask.view
    if not view.is_live:
        return _not_written(ask)
    if view.window_max is None or view.in_flight < view.window_max:
        if view.stable_offset is not None and ask.offset >= view.stable_offset:
            return Explanation("waiting", _undecided_transaction(view.stable_offset))
        before = ask.offset - (view.next_offset or 0)
        place = f"{_count(before)} before it" if before else "it is the next one"
        return Explanation("waiting", f"No member has fetched this far yet; {place}.{ask.nobody}")
    text, blocker = _full_window(ask)
    return Explanation("waiting", f"Behind the window, which {text}", blocker)


def _undecided_transaction(stable_offset: int) -> str:
    return (
        f"A transaction that began at offset {stable_offset} is open, and the group reads only committed records "
        "(share.isolation.level): nothing from there on is delivered until it ends."
    )


def _full_window(ask: _Question) -> tuple[str, int | None]:
    """What holds it up, in words that follow "the window", and the offset of that record."""
    view = ask.view
    since = f" since {_clock(view.full_since)}" if view.full_since is not None else ""
    text = f"has been full{since} ({view.in_flight:,} of {view.window_max:,} records)."
    oldest = next((run for run in view.runs if run.state not in FINAL), None)
    if oldest is None:
        return text + ask.nobody, None
    what = _held(ask, oldest) if oldest.state is RecordState.ACQUIRED else f"{oldest.state.name.lower()}"
    text += f" Its oldest record, offset {oldest.first}, is {what.removeprefix('it is ')}.{ask.nobody}"
    return text, oldest.first


def _not_written(ask: _Question) -> Explanation:
    text = f"It has no written state: it waits for a fetch, or a member holds it. {ONLY_THE_BROKER}"
    if ask.view.start_offset is not None and ask.offset > ask.view.start_offset:
        text += f" The group starts at {ask.view.start_offset}."
    return Explanation(UNKNOWN, text + ask.nobody)


def _held(ask: _Question, run: StateRun) -> str:
    name = ask.names.get(run.holder or "", run.holder)
    words = f"it is held by {name}"
    if run.held_ms is not None:
        words += f" for {run.held_ms // 1000} s"
        if run.renewals:
            words += f", renewed {_times(run.renewals)}"
    if run.lock_ms_left is not None:
        words += f"; its lock ends in {run.lock_ms_left / 1000:.0f} s"
    return words


def _clock(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%H:%M:%S UTC")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _count(count: int) -> str:
    return f"{count:,} record{'s' if count != 1 else ''} come{'s' if count == 1 else ''}"


def past_member_name(hold: PastHold) -> str:
    """Its client id and host where they were written, else its id."""
    return member_name(hold.client_id, hold.client_host) if hold.client_id else hold.member_id


def member_name(client_id: str, host: str) -> str:
    """A member for people: its client id and host, without the parts that repeat each other."""
    where = host.removeprefix("/")
    return client_id if not where or "@" in client_id else f"{client_id}@{where}"
