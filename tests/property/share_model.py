"""docs/concepts/share-semantics.md as simple code: a share-partition with one cell per offset."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.share.changes import AckBatch, Span
from headrace.share.errors import InvalidRecordState, InvalidRequest
from headrace.share.holds import Hold
from headrace.share.limits import Limits
from headrace.share.modes import AcquireMode
from headrace.share.states import RecordState as S

SETTLED = (S.ACKNOWLEDGED, S.ARCHIVED)
Entry = tuple[int, int, int]


@dataclass(slots=True)
class Cell:
    state: S
    count: int
    batch: Span
    holder: str | None = None
    deadline_ms: int | None = None
    since_ms: int | None = None
    renewals: int = 0

    @property
    def hold(self) -> Hold | None:
        if self.holder is None or self.since_ms is None:
            return None
        return Hold(self.holder, self.since_ms, self.renewals)

    def become(self, state: S) -> None:
        self.state, self.holder, self.deadline_ms = state, None, None
        self.since_ms, self.renewals = None, 0


@dataclass
class Model:
    start: int
    next: int
    cells: dict[int, Cell] = field(default_factory=dict)
    unread: set[int] = field(default_factory=set)
    persisted: dict[int, tuple[S, int]] = field(default_factory=dict)
    persisted_start: int | None = None

    @property
    def settled_count(self) -> int:
        return sum(cell.state in SETTLED for offset, cell in self.cells.items() if offset >= self.start)

    def next_fetch_offset(self) -> int:
        available = [offset for offset, cell in self.cells.items() if cell.state is S.AVAILABLE]
        return min([*available, *self.unread, self.next])

    def deadline_ms(self) -> int | None:
        return min(
            (cell.deadline_ms for cell in self.cells.values() if cell.deadline_ms is not None), default=None
        )

    def acquire(
        self,
        member: str,
        *,
        mode: AcquireMode,
        batch_size: int,
        records_max: int,
        fetch_offset: int,
        batches: Sequence[Span],
        limits: Limits,
        aborted: Sequence[Span],
        now_ms: int,
    ) -> list[Entry]:
        taking = Taking(self, mode, batch_size, batches, limits)
        if batches and batches[-1][1] >= self.start:
            taking.walk(fetch_offset, records_max)
        entries: list[Entry] = []
        for offset in sorted(taking.taken):
            cell = self.cells[offset]
            cell.count += 1
            if any(first <= offset <= last for first, last in aborted):
                cell.become(S.ARCHIVED)
                continue
            cell.state, cell.holder, cell.deadline_ms = S.ACQUIRED, member, now_ms + limits.lock_ms
            cell.since_ms = now_ms
            before = entries[-1] if entries else (0, -2, 0)
            if before[1:] == (offset - 1, cell.count) and self.cells[offset - 1].batch == cell.batch:
                entries[-1] = (before[0], offset, cell.count)
            else:
                entries.append((offset, offset, cell.count))
        self.advance()
        return entries

    def acknowledge(
        self, member: str, batches: Sequence[AckBatch], *, limits: Limits, allows_renew: bool, now_ms: int
    ) -> None:
        previous_last = -1
        for first, last, types in batches:
            fits = len(types) in (1, last - first + 1) and all(
                0 <= kind <= 3 + allows_renew for kind in types
            )
            if first > last or first < previous_last or not types or not fits:
                raise InvalidRequest
            previous_last = last
        answers: dict[int, int] = {}
        for first, last, types in batches:
            if last < self.start:
                continue
            if first >= self.start and not any(offset <= first for offset in self.cells):
                raise InvalidRecordState
            if last not in self.cells:
                raise InvalidRequest
            for offset in range(max(first, self.start), last + 1):
                cell = self.cells.get(offset)
                if cell is None:
                    continue
                kind = types[0] if len(types) == 1 else types[offset - first]
                if (
                    cell.holder != member
                    or answers.get(offset, 4) != 4
                    or (kind == 4 and not limits.renew_enabled)
                ):
                    raise InvalidRecordState
                answers[offset] = kind
        for offset, kind in answers.items():
            if kind == 4:
                self.cells[offset].deadline_ms = now_ms + limits.lock_ms
                self.cells[offset].renewals += 1
            elif kind == 2:
                self.give_back(offset, limits)
            else:
                dead = S.ARCHIVING if limits.dead_letters else S.ARCHIVED
                self.cells[offset].become({0: S.ARCHIVED, 1: S.ACKNOWLEDGED, 3: dead}[kind])
        self.persist([offset for offset, kind in answers.items() if kind != 4])
        self.advance()

    def end_holds(self, limits: Limits, *, member: str | None = None, now_ms: int | None = None) -> None:
        """Of a member, or those whose deadline has come."""
        ended = [
            offset
            for offset, cell in self.cells.items()
            if cell.deadline_ms is not None
            and (cell.holder == member or (now_ms is not None and cell.deadline_ms <= now_ms))
        ]
        for offset in ended:
            self.give_back(offset, limits)
        self.persist(ended)
        self.advance()

    def give_back(self, offset: int, limits: Limits) -> None:
        cell = self.cells[offset]
        if offset < self.start:
            cell.become(S.ARCHIVED)
        elif cell.count >= limits.delivery_limit:
            cell.become(S.ARCHIVING if limits.dead_letters else S.ARCHIVED)
        else:
            cell.become(S.AVAILABLE)

    def dead_lettered(self, first: int, last: int) -> None:
        copied = [o for o in range(first, last + 1) if o in self.cells and self.cells[o].state is S.ARCHIVING]
        for offset in copied:
            self.cells[offset].become(S.ARCHIVED)
        self.persist(copied)
        self.advance()

    def archive_before(self, log_start: int) -> None:
        for offset, cell in self.cells.items():
            if offset < log_start and cell.state is S.AVAILABLE:
                cell.become(S.ARCHIVED)
        self.start = max(self.start, log_start)
        self.next = max(self.next, self.start)
        self.unread = {offset for offset in self.unread if offset >= self.start}
        self.advance()

    def persist(self, offsets: Sequence[int]) -> None:
        """Writes go with the start as it was before the change."""
        written = [offset for offset in offsets if offset >= self.start]
        if written:
            self.persisted_start = self.start
            self.persisted |= {
                offset: (self.cells[offset].state, self.cells[offset].count) for offset in written
            }
            self.persisted = {offset: kept for offset, kept in self.persisted.items() if offset >= self.start}

    def advance(self) -> None:
        while self.start < self.next and self.start not in self.unread:
            cell = self.cells.get(self.start)
            if cell is not None and cell.state not in SETTLED:
                break
            self.start += 1
        for offset in [offset for offset in self.cells if offset < self.start]:
            if self.cells[offset].state in SETTLED:
                del self.cells[offset]


class Taking:
    """One acquisition."""

    def __init__(
        self, model: Model, mode: AcquireMode, batch_size: int, batches: Sequence[Span], limits: Limits
    ) -> None:
        self.model, self.batches, self.limits = model, batches, limits
        self.is_strict = mode is AcquireMode.RECORD_LIMIT
        self.batch_size = max(1, batch_size)
        self.taken: set[int] = set()
        self.cap = 0

    def walk(self, fetch_offset: int, records_max: int) -> None:
        model, base, last = self.model, self.batches[0][0], self.batches[-1][1]
        window = model.next - model.start
        self.cap = min(records_max, self.limits.window_max - window)
        if records_max > 0 >= self.cap and fetch_offset < model.next:
            self.cap, last = min(records_max, model.next - fetch_offset), min(last, model.next - 1)
        if self.cap <= 0:
            return
        for offset in range(fetch_offset, base):
            self.lose(offset)
        groups: list[tuple[object, list[int]]] = []
        for offset in range(base, min(last, model.next - 1) + 1):
            cell = model.cells.get(offset)
            key: object = "unread" if offset in model.unread else None
            if cell is not None and cell.state is S.AVAILABLE:
                key = cell.batch
            if key is None:
                continue
            if groups and groups[-1][0] == key and (key != "unread" or groups[-1][1][-1] == offset - 1):
                groups[-1][1].append(offset)
            else:
                groups.append((key, [offset]))
        for key, offsets in groups:
            if len(self.taken) >= self.cap or not self.take_group(key, offsets):
                return
        first = max(base, model.next)
        if len(self.taken) < self.cap and first <= last:
            self.take_new(first, last)

    def lose(self, offset: int) -> None:
        """The log does not have it any more."""
        cell = self.model.cells.get(offset)
        if cell is not None and cell.state is S.AVAILABLE:
            cell.become(S.ARCHIVED)
        if offset in self.model.unread:
            self.model.unread.discard(offset)
            self.model.cells[offset] = Cell(S.ARCHIVED, 0, (offset, offset))

    def take_group(self, key: object, offsets: list[int]) -> bool:
        if key == "unread":
            self.take_new(offsets[0], offsets[-1])
            return True
        cells = self.model.cells
        if max(cells[offset].count for offset in offsets) >= self.limits.isolation_count:
            if not self.taken:
                self.take_isolated(offsets)
            return False
        self.taken |= set(offsets[: self.cap - len(self.taken)] if self.is_strict else offsets)
        return True

    def take_isolated(self, offsets: list[int]) -> None:
        limit, part_max = self.limits.delivery_limit, None
        for offset in offsets:
            cell = self.model.cells[offset]
            is_last = limit > 2 and cell.count == limit - 1
            if cell.count >= self.limits.isolation_count and part_max is None:
                length = cell.batch[1] - cell.batch[0] + 1
                part_max = max(1, length >> (cell.count - self.limits.isolation_count + 1))
            if (is_last and self.taken) or (part_max is not None and len(self.taken) >= part_max):
                return
            self.taken.add(offset)
            if is_last or (self.is_strict and len(self.taken) == self.cap):
                return

    def take_new(self, first: int, last: int) -> None:
        model, room = self.model, self.cap - len(self.taken)
        if model.start == model.next:
            model.start = first
        if room < last - first + 1:
            end = first + room - 1
            last = min(
                last, next((b_last for b_first, b_last in self.batches if b_first <= end <= b_last), end)
            )
        begin = first
        begins = [first]
        for batch_first, _ in self.batches:
            if not self.is_strict and batch_first <= last and batch_first - begin >= self.batch_size:
                begin = batch_first
                begins.append(begin)
        for begin, after in zip(begins, [*begins[1:], last + 1], strict=True):
            for offset in range(begin, after):
                model.cells[offset] = Cell(S.AVAILABLE, 0, (begin, after - 1))
                model.unread.discard(offset)
        taken_last = min(last, first + room - 1) if self.is_strict else last
        self.taken |= set(range(first, taken_last + 1))
        model.next = max(model.next, last + 1)
