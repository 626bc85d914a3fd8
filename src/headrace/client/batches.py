"""`DeliveryBatch`: the records of a poll as one Arrow record batch, acknowledged many rows at a time.

    for batch in consumer.batches():
        orders = pl.from_arrow(batch.records)
        good = orders["value"].bin.size() > 0
        batch.accept(good)
        batch.reject(~good)

The rows are kept with their acquired ranges (`Rows`), so acknowledging a mask is one pass over bytes for each range,
and acknowledging all rows of a range costs as much as acknowledging one record. pyarrow is imported by `batches()`.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib import import_module
from itertools import compress
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.client.core.holdings import Arrival
from headrace.client.core.ranges import AcquiredRange, RangeState
from headrace.client.decoding import ALL_TAKEN, TAKEN, Damaged, Gap, Piece, Rows, decode_into
from headrace.wire.batches import BatchHeader
from headrace.wire.fields import load_numpy

if TYPE_CHECKING:
    from headrace.client.columns import ColumnBuilder

NO_ARROW = (
    "batches() returns Arrow record batches, and pyarrow cannot be imported ({error}). "
    "Install it with: pip install 'headrace[arrow]'"
)
AnswerRows = Callable[[Sequence[Rows], bytes | None, int, float | timedelta], None]
GONE = bytes([RangeState.LOST, RangeState.LATE])


class DeliveryBatch:
    """Records that are locked for this consumer, as rows. Accept, release or reject them before their locks expire.

    `records` is a `pyarrow.RecordBatch` with the columns key, value (bytes), topic, partition, offset, timestamp,
    timestampType, headers and deliveryCount. A mask has one boolean for each row: an Arrow or NumPy array, a Polars or
    pandas Series, or a list. Null counts as false. Without a mask, the methods acknowledge all rows that are not
    acknowledged yet.

    The methods require explicit acknowledgement mode and can be called on any thread. As for a `Delivery`, the next
    poll or commit sends the acknowledgements, and until then a later call replaces an earlier one. Either all rows of
    the mask are acknowledged or, with `IllegalStateError`, none.
    """

    __slots__ = ("_answer", "_rows", "records")

    def __init__(self, records: Any, rows: Sequence[Rows], answer: AnswerRows) -> None:
        self.records = records
        """The records, as a `pyarrow.RecordBatch`."""
        self._rows = rows
        self._answer = answer

    def __len__(self) -> int:
        return int(self.records.num_rows)

    def __repr__(self) -> str:
        return f"DeliveryBatch({len(self)} rows)"

    def accept(self, mask: Any = None) -> None:
        """Acknowledges rows as processed."""
        self._answer(self._rows, self._mask(mask), 1, 0)

    def release(self, mask: Any = None, *, after: float | timedelta = 0) -> None:
        """Releases rows immediately, or after `after` seconds as `Delivery.release` does."""
        self._answer(self._rows, self._mask(mask), 2, after)

    def reject(self, mask: Any = None) -> None:
        """Acknowledges rows as records that cannot be processed."""
        self._answer(self._rows, self._mask(mask), 3, 0)

    @property
    def lost(self) -> Any:
        """A mask of the rows whose locks expired or were revoked, so that another member may have them."""
        import pyarrow as pa

        found = [acquired.state_of(offset) in GONE for acquired, offsets in self._rows for offset in offsets]
        return pa.array(found, pa.bool_())

    def _mask(self, mask: Any) -> bytes | None:
        """A byte for each row, 1 where it is meant; None: there was no mask."""
        if mask is None:
            return None
        import pyarrow as pa
        import pyarrow.compute as pc

        if hasattr(mask, "__arrow_c_stream__"):
            mask = pa.chunked_array(mask)
        elif not isinstance(mask, (pa.Array, pa.ChunkedArray)):
            try:
                mask = pa.array(mask, from_pandas=True)
            except (TypeError, pa.ArrowInvalid) as error:
                raise TypeError(f"the mask must be booleans, one for each row, got {mask!r}") from error
        if isinstance(mask, pa.ChunkedArray):
            mask = mask.combine_chunks()
        if len(mask) != len(self):
            raise ValueError(
                f"the mask must have one value for each of the {len(self)} rows, got {len(mask)}"
            )
        if not len(mask):
            return b""
        if pa.types.is_null(mask.type):
            return bytes(len(mask))
        if not pa.types.is_boolean(mask.type):
            raise TypeError(f"the mask must be booleans, one for each row, got type {mask.type}")
        is_meant = pc.fill_null(mask, False).cast(pa.uint8())
        return bytes(is_meant.buffers()[1])[is_meant.offset : is_meant.offset + len(mask)]


class Taken(NamedTuple):
    """What a poll has decoded, and has perhaps not returned."""

    batch: DeliveryBatch
    damaged: Sequence[Damaged]


class Columns:
    """A sink that puts records into columns."""

    def __init__(self, builder: "ColumnBuilder") -> None:
        self._builder = builder

    def knows(self, arrival: Arrival, header: BatchHeader) -> bool:
        return False

    def read(
        self,
        arrival: Arrival,
        position: int,
        header: BatchHeader,
        ours: list[AcquiredRange],
        pieces: list[Piece],
    ) -> None:
        builder = self._builder
        builder.want(arrival.topic, arrival.partition, _held(ours))
        offsets = builder.add(header, memoryview(arrival.records)[position : position + header.size])
        for acquired in ours:
            mine = offsets if len(ours) == 1 else [offset for offset in offsets if offset in acquired]
            if mine:
                _add(pieces, acquired, mine)


class _Held(NamedTuple):
    first: int
    last: int
    delivery_count: int


def _held(ours: list[AcquiredRange]) -> Sequence[Any]:
    """What of these ranges was not lost since it was taken."""
    if all(acquired.is_all(ALL_TAKEN) for acquired in ours):
        return ours
    return [
        _Held(span.first, span.last, acquired.delivery_count)
        for acquired in ours
        for span in acquired.spans(of=TAKEN)
    ]


def _add(pieces: list[Piece], acquired: AcquiredRange, offsets: Sequence[int]) -> None:
    if pieces:
        last = pieces[-1]
        if isinstance(last, Rows) and last.acquired is acquired:
            pieces[-1] = Rows(acquired, _chained(last.offsets, offsets))
            return
    pieces.append(Rows(acquired, offsets))


def _chained(before: Sequence[int], offsets: Sequence[int]) -> Sequence[int]:
    if isinstance(before, range) and isinstance(offsets, range) and before.stop == offsets.start:
        return range(before.start, offsets.stop)
    return [*before, *offsets]


def require_arrow() -> None:
    """Imports what rows need, so that the first poll does not wait for it. ImportError says what to install."""
    try:
        import_module("pyarrow").array([])  # which imports pandas, where it is installed
        import_module("headrace.client.columns")
    except ImportError as error:
        raise ImportError(NO_ARROW.format(error=error), name="pyarrow") from error
    load_numpy()


def take_rows(
    arrivals: Sequence[Arrival], answer: AnswerRows, *, check_crcs: bool
) -> tuple[Taken, list[Gap]]:
    """All of the arrivals as one batch; what cannot be read is beside it."""
    from headrace.client.columns import VECTOR_ROWS_MIN

    count = sum(acquired.count for arrival in arrivals for acquired in arrival.acquired)
    taken = _rows(arrivals, answer, check_crcs, is_vectorized=True) if count >= VECTOR_ROWS_MIN else None
    taken = taken or _rows(arrivals, answer, check_crcs, is_vectorized=False)
    assert taken is not None  # one by one there is always an answer
    return taken


def _rows(
    arrivals: Sequence[Arrival], answer: AnswerRows, check_crcs: bool, *, is_vectorized: bool
) -> tuple[Taken, list[Gap]] | None:
    from headrace.client.columns import ColumnBuilder

    builder = ColumnBuilder(include_headers=True, is_vectorized=is_vectorized)
    sink = Columns(builder)
    pieces: list[Piece] = []
    gaps: list[Gap] = []
    for arrival in arrivals:
        decoded = decode_into(sink, arrival, check_crcs=check_crcs)
        pieces += decoded.pieces
        gaps += decoded.gaps
    built = builder.build()
    if built is None:
        return None
    rows = [piece for piece in pieces if isinstance(piece, Rows)]
    damaged = [piece for piece in pieces if isinstance(piece, Damaged)]
    return Taken(DeliveryBatch(built, rows, answer), damaged), gaps


def without_lost(batch: DeliveryBatch) -> DeliveryBatch:
    """The rows that were not lost before the application got them. Each is checked once: more may be lost meanwhile."""
    import pyarrow as pa

    kept: list[Rows] = []
    mask: list[bool] = []
    for acquired, offsets in batch._rows:
        ours = [acquired.state_of(offset) not in GONE for offset in offsets]
        mask += ours
        if any(ours):
            kept.append(Rows(acquired, list(compress(offsets, ours))))
    return DeliveryBatch(batch.records.filter(pa.array(mask, pa.bool_())), kept, batch._answer)


def unanswered(rows: Sequence[Rows]) -> bytes:
    """A mask: the rows that the application has, or has lost, without an acknowledgement."""
    open_states = (RangeState.HANDED, RangeState.LOST)
    return bytes(
        [acquired.state_of(offset) in open_states for acquired, offsets in rows for offset in offsets]
    )


def parts_of(rows: Sequence[Rows], mask: bytes) -> list[tuple[AcquiredRange, int, bytes]]:
    """A mask of rows as masks of offsets: (range, first offset, a byte for each offset)."""
    parts: list[tuple[AcquiredRange, int, bytes]] = []
    row = 0
    for acquired, offsets in rows:
        ours = mask[row : row + len(offsets)]
        row += len(offsets)
        if 1 not in ours:
            continue
        first, last = offsets[0], offsets[-1]
        if last - first + 1 == len(offsets):
            parts.append((acquired, first, ours))
            continue
        spread = bytearray(last - first + 1)  # there are gaps
        for offset, is_meant in zip(offsets, ours, strict=True):
            spread[offset - first] = is_meant
        parts.append((acquired, first, bytes(spread)))
    return parts
