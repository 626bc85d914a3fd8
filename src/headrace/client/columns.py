"""Record batches decoded straight into Arrow columns: for the consumers' `batches()`, and for Spark's tasks.

There are two ways to the same columns. With NumPy, and where a batch holds a record for each of its offsets, batches
wait until they are many, and become columns together (`wire/fields.py`): no object is made for a record. Where there is
no NumPy, where offsets are missing (a compacted topic), where anything is unusual, or where the records are few, they
go from the compiled reader into plain lists, one per column, and from there into Arrow. That way also judges what
cannot be read. What is the same for all rows costs nothing.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from headrace.wire.batches import BatchHeader, Buffer
from headrace.wire.fields import Fields, Parts, find_fields, load_numpy
from headrace.wire.records import Record, read_chunks, unpacked

ROWS_PER_BATCH = 10_000
BYTES_PER_BATCH = 4 * 1024 * 1024
"""Of keys and values: large records make smaller Arrow batches. Data this small stays in the processor's cache."""
VECTOR_ROWS_MIN = 300
"""Fewer are read one by one sooner."""
VECTOR_RECORDS_MIN = 4
"""The same of the records of one batch."""
VECTOR_BYTES_MAX = 1024 * 1024 * 1024
"""Positions in the data are 32 bits wide."""

_MILLIS = pa.timestamp("ms", tz="UTC")
_MICROS = pa.timestamp("us", tz="UTC")
_MILLIS_MAX = (2**63 - 1) // 1000
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class Wanted(Protocol):
    """Records first..last of one partition, all delivered the same number of times."""

    @property
    def first(self) -> int: ...

    @property
    def last(self) -> int: ...

    @property
    def delivery_count(self) -> int: ...


class _Repeated:
    """A column of which neighboring rows are mostly alike: each value once, with the number of its rows."""

    __slots__ = ("_counts", "_values")

    def __init__(self) -> None:
        self._values: list[Any] = []
        self._counts: list[int] = []

    def extend(self, value: Any, count: int) -> None:
        if self._values and self._values[-1] == value:
            self._counts[-1] += count
        else:
            self._values.append(value)
            self._counts.append(count)

    def cut(self, rows: int) -> None:
        """Takes back what is behind these."""
        while self._counts and (surplus := sum(self._counts) - rows) > 0:
            if self._counts[-1] > surplus:
                self._counts[-1] -= surplus
            else:
                self._counts.pop()
                self._values.pop()

    def build(self, type: pa.DataType) -> pa.Array:
        if len(self._values) == 1:
            return _repeat(self._values[0], type, self._counts[0])
        np = load_numpy()
        if np is not None:
            return pa.array(self._values, type).take(
                pa.array(np.repeat(np.arange(len(self._values)), self._counts))
            )
        pairs = zip(self._values, self._counts, strict=True)
        return pa.array([value for value, count in pairs for _ in range(count)], type)


@lru_cache(maxsize=16)
def _repeat(value: Any, type: pa.DataType, count: int) -> pa.Array:
    """Batches are often of the same few sizes, and arrays never change."""
    return pa.repeat(pa.scalar(value, type), count)


class _Columns(NamedTuple):
    """The columns that differ from row to row."""

    keys: pa.Array
    values: pa.Array
    offsets: pa.Array
    timestamps: pa.Array
    headers: pa.Array | None


class _Lists:
    """Records that were read one by one."""

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.offsets: list[int] = []
        self.timestamps: list[int] = []
        self.headers: list[list[tuple[str, bytes | None]] | None] = []

    def cut(self, rows: int) -> None:
        """Takes back what was added behind these."""
        columns: list[list[Any]] = [self.keys, self.values, self.offsets, self.timestamps, self.headers]
        for column in columns:
            del column[rows:]

    def build(self, *, include_headers: bool) -> _Columns:
        headers = None
        if include_headers:
            has_headers = any(self.headers)
            headers = (
                pa.array(self.headers, _HEADERS) if has_headers else pa.nulls(len(self.headers), _HEADERS)
            )
        return _Columns(
            pa.array(self.keys, pa.binary()),
            pa.array(self.values, pa.binary()),
            pa.array(self.offsets, pa.int64()),
            _micros(pa.array(self.timestamps, pa.int64())),
            headers,
        )


class _PutOff(NamedTuple):
    """A batch that waits to be read with others."""

    header: BatchHeader
    payload: Buffer
    wanted: list[tuple[int, int]] | None
    """The places of the records that are wanted (first, last); None: all."""


class _Vectors:
    """Batches that are read together."""

    def __init__(self) -> None:
        self.batches: list[_PutOff] = []

    def build(self, *, include_headers: bool) -> _Columns | None:
        """None where something is unusual."""
        np = load_numpy()
        batches = self.batches
        counts = [each.header.record_count for each in batches]
        found = find_fields([each.payload for each in batches], counts)
        if found is None:
            return None
        total = len(found.offset_deltas)
        ends = np.cumsum(counts)
        rows = np.arange(total)
        offsets = found.offset_deltas + np.repeat([each.header.base_offset for each in batches], counts)
        times = [
            each.header.max_timestamp if each.header.is_log_append_time else each.header.base_timestamp
            for each in batches
        ]
        timestamps = np.repeat(times, counts)
        is_stamped = [each.header.is_log_append_time for each in batches]
        if not any(is_stamped):
            timestamps += found.timestamp_deltas
        elif not all(is_stamped):
            timestamps += np.where(np.repeat(is_stamped, counts), 0, found.timestamp_deltas)
        if any(each.wanted is not None for each in batches):
            rows = _chosen(np, batches, ends - counts)
            offsets, timestamps = offsets[rows], timestamps[rows]
        data = pa.py_buffer(found.data)
        headers = None
        if include_headers or found.header_counts is not None:
            headers = _headers_of(np, found, data, rows)
            if headers is None:
                return None
        return _Columns(
            _binary(np, found.keys, data, rows),
            _binary(np, found.values, data, rows),
            _numbers(offsets),
            _micros_of(timestamps),
            headers if include_headers else None,
        )


def _chosen(np: Any, batches: Sequence[_PutOff], begins: Any) -> Any:
    """The wanted records, counted through all batches."""
    pairs = [
        (begin + first, begin + last)
        for each, begin in zip(batches, begins.tolist(), strict=True)
        for first, last in (((0, each.header.record_count - 1),) if each.wanted is None else each.wanted)
    ]
    firsts, lasts = np.array(pairs).reshape(-1, 2).T
    sizes = lasts - firsts + 1
    ends = np.cumsum(sizes)
    return np.arange(sizes.sum()) + np.repeat(firsts - (ends - sizes), sizes)


def _numbers(values: Any) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def _binary(np: Any, found: Parts, data: pa.Buffer, rows: Any) -> pa.Array:
    """Copies the slices of these rows out of the data: they, and what lies between them, are an array already."""
    if found.is_null is not None and found.is_null.all():
        return pa.nulls(len(rows), pa.binary())
    count = len(found.starts)
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2], offsets[1::2] = found.starts, found.ends
    spread = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), data])
    if found.is_null is None:
        return spread.take(_numbers(2 * rows))
    return spread.take(pa.array(2 * rows, mask=found.is_null[rows]))


def _headers_of(np: Any, found: Fields, data: pa.Buffer, rows: Any) -> pa.Array | None:
    """None for a name that is no UTF-8."""
    if found.header_counts is None or found.header_keys is None or found.header_values is None:
        return pa.nulls(len(rows), _HEADERS)
    every = np.arange(len(found.header_keys.starts))
    names = _binary(np, found.header_keys, data, every).view(pa.string())
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:
        return None
    values = _binary(np, found.header_values, data, every)
    offsets = np.zeros(len(found.header_counts) + 1, np.int32)
    np.cumsum(found.header_counts, out=offsets[1:])
    # Spark's Kafka source gives null, not an empty list, to a record without headers.
    is_null = np.append(found.header_counts == 0, False)
    entries = pa.StructArray.from_arrays([names, values], fields=list(_HEADERS.value_type))
    lists = pa.ListArray.from_arrays(pa.array(offsets, mask=is_null), entries).cast(_HEADERS)
    return lists if len(rows) == len(lists) else lists.take(_numbers(rows))


class ColumnBuilder:
    """Collects the wanted records, partition after partition, until `rest` or `build` gives them as an Arrow batch."""

    def __init__(self, *, include_headers: bool, is_vectorized: bool = False) -> None:
        """`is_vectorized`: with NumPy, where there is one; else all records are read one by one."""
        self._include_headers = include_headers
        self._is_vectorized = is_vectorized and load_numpy() is not None
        self._runs: Sequence[Wanted] = ()
        self._firsts: list[int] = []
        self._place = "", 0
        self._clear()

    @property
    def rows(self) -> int:
        return self._rows

    def want(self, topic: str, partition: int, runs: Sequence[Wanted]) -> None:
        """From now on it takes the records in these runs of a partition: in order, without overlap."""
        self._runs = runs
        self._firsts = [run.first for run in runs]
        self._place = topic, partition

    def add(self, header: BatchHeader, batch: Buffer) -> Sequence[int]:
        """The batch's records that are in the runs: their offsets.

        All or none of them when it cannot be read (KafkaError). With `is_vectorized` that may be found out later:
        `build` gives None, and the way to know more is to do it all again without.
        """
        if self._is_dense(header):
            payload = unpacked(header, batch)
            if self._bytes + len(payload) <= VECTOR_BYTES_MAX:
                return self._put_off(header, payload)
        rows = self._rows
        lists = self._lists()
        before = len(lists.offsets)
        try:
            for _ in self._chunks(header, batch):
                pass
        except BaseException:
            lists.cut(before)
            self._cut(rows)
            raise
        return lists.offsets[before:]

    def stream(self, header: BatchHeader, batch: Buffer) -> Iterator[pa.RecordBatch]:
        """The same, but what is much is given at once."""
        if header.size <= BYTES_PER_BATCH and (self._added or self._is_dense(header)):
            if not self._added:
                yield from self.rest()
            self._added.append((*self._place, self._runs, header, batch))
            self.add(header, batch)
            if self._is_full:
                yield from self.rest()
            return
        if self._added:
            yield from self.rest()
        for _ in self._chunks(header, batch):
            if self._is_full:
                yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What it has, if anything, in batches of bounded size."""
        has_vectors = any(isinstance(group, _Vectors) for group in self._groups)
        is_worth_it = self._rows >= VECTOR_ROWS_MIN if has_vectors else self._rows > 0
        built = self.build() if is_worth_it else None
        added = self._added
        self._clear()
        if built is not None:
            for first in range(0, built.num_rows, ROWS_PER_BATCH):
                yield built.slice(first, ROWS_PER_BATCH)
            return
        if not has_vectors:
            return
        one_by_one = ColumnBuilder(include_headers=self._include_headers)
        for topic, partition, runs, header, batch in added:
            one_by_one.want(topic, partition, runs)
            yield from one_by_one.stream(header, batch)
        yield from one_by_one.rest()

    def build(self) -> pa.RecordBatch | None:
        """What it has; None where batches that were put off cannot be read together."""
        parts: list[_Columns] = []
        for group in self._groups or [_Lists()]:
            built = group.build(include_headers=self._include_headers)
            if built is None:
                return None
            parts.append(built)
        found = parts[0] if len(parts) == 1 else _Columns(*map(_joined, zip(*parts, strict=True)))
        columns = {
            "key": found.keys,
            "value": found.values,
            "topic": self._topics.build(pa.string()),
            "partition": self._partitions.build(pa.int32()),
            "offset": found.offsets,
            "timestamp": found.timestamps,
            "timestampType": self._timestamp_types.build(pa.int32()),
        }
        if self._include_headers:
            columns["headers"] = found.headers
        columns["deliveryCount"] = self._delivery_counts.build(pa.int32())
        return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

    def _clear(self) -> None:
        self._bytes = self._rows = 0
        self._topics, self._partitions = _Repeated(), _Repeated()
        self._timestamp_types, self._delivery_counts = _Repeated(), _Repeated()
        self._groups: list[_Lists | _Vectors] = []
        """In the order of their rows."""
        self._added: list[tuple[str, int, Sequence[Wanted], BatchHeader, Buffer]] = []
        """What `stream` was given since it has put off a batch, should it all have to be read one by one."""

    def _cut(self, rows: int) -> None:
        self._rows = rows
        for repeated in (self._topics, self._partitions, self._timestamp_types, self._delivery_counts):
            repeated.cut(rows)

    @property
    def _is_full(self) -> bool:
        return self._rows >= ROWS_PER_BATCH or self._bytes >= BYTES_PER_BATCH

    def _is_dense(self, header: BatchHeader) -> bool:
        """There is a record for each offset, so that its rows are known before it is read."""
        count = header.record_count
        return self._is_vectorized and count == header.last_offset_delta + 1 and count >= VECTOR_RECORDS_MIN

    def _put_off(self, header: BatchHeader, payload: Buffer) -> Sequence[int]:
        """To be read with others, by `build`."""
        base, last = header.base_offset, header.last_offset
        self._bytes += len(payload)
        run = self._run_of(base)
        offsets: Sequence[int]
        if run is not None and last <= run.last:
            wanted = None
            offsets = range(base, last + 1)
            self._delivery_counts.extend(run.delivery_count, len(offsets))
        else:
            wanted = []
            found: list[int] = []
            for index in range(
                max(0, bisect_right(self._firsts, base) - 1), bisect_right(self._firsts, last)
            ):
                run = self._runs[index]
                low, high = max(run.first, base), min(run.last, last)
                if low <= high:
                    wanted.append((low - base, high - base))
                    found += range(low, high + 1)
                    self._delivery_counts.extend(run.delivery_count, high - low + 1)
            offsets = found
        if offsets:
            self._extend(len(offsets), header)
            group = self._groups[-1] if self._groups else None
            if not isinstance(group, _Vectors):
                group = _Vectors()
                self._groups.append(group)
            group.batches.append(_PutOff(header, payload, wanted))
        return offsets

    def _lists(self) -> _Lists:
        group = self._groups[-1] if self._groups else None
        if not isinstance(group, _Lists):
            group = _Lists()
            self._groups.append(group)
        return group

    def _chunks(self, header: BatchHeader, batch: Buffer) -> Iterator[None]:
        """Adds the records, a few hundred at a time."""
        whole = self._run_of(header.base_offset)
        if whole is not None and header.last_offset > whole.last:
            whole = None
        self._bytes += header.size
        for records in read_chunks(batch):
            if whole is not None:
                self._delivery_counts.extend(whole.delivery_count, len(records))
            else:
                records = self._wanted(records)
            if records:
                self._extend(len(records), header)
                self._append(records, header)
            yield

    def _wanted(self, records: list[Record]) -> list[Record]:
        """Those that are in the runs; their delivery counts are noted."""
        kept: list[Record] = []
        for record in records:
            run = self._run_of(record.offset)
            if run is not None:
                kept.append(record)
                self._delivery_counts.extend(run.delivery_count, 1)
        return kept

    def _extend(self, count: int, header: BatchHeader) -> None:
        """What is the same for all rows of a batch."""
        self._rows += count
        self._topics.extend(self._place[0], count)
        self._partitions.extend(self._place[1], count)
        self._timestamp_types.extend(int(header.is_log_append_time), count)

    def _append(self, records: Sequence[Record], header: BatchHeader) -> None:
        lists, count = self._lists(), len(records)
        # A list comprehension per column: ten times faster here than one loop over the records.
        lists.keys += [record.key for record in records]
        lists.values += [record.value for record in records]
        if header.is_log_append_time:
            lists.timestamps += [header.max_timestamp] * count
        else:
            lists.timestamps += [record.timestamp for record in records]
        if self._include_headers:
            # Spark's Kafka source gives null, not an empty list, to a record without headers.
            lists.headers += [record.headers or None for record in records]
        first = records[0].offset
        if records[-1].offset - first + 1 == count:  # no gaps, as usual: offsets ascend
            lists.offsets += range(first, first + count)
        else:
            lists.offsets += [record.offset for record in records]

    def _run_of(self, offset: int) -> Wanted | None:
        index = bisect_right(self._firsts, offset) - 1
        if index < 0 or self._runs[index].last < offset:
            return None
        return self._runs[index]


def _micros_of(millis: Any) -> pa.Array:
    """The same for an array of NumPy."""
    if millis.min() >= -_MILLIS_MAX and millis.max() <= _MILLIS_MAX:
        return _numbers(millis * 1000).view(_MICROS)
    return _micros(_numbers(millis))


def _micros(millis: pa.Array) -> pa.Array:
    """What lies beyond the microseconds of 64 bits, 290,000 years from now, becomes the last of them."""
    try:
        return millis.view(_MILLIS).cast(_MICROS)
    except pa.ArrowInvalid:
        import pyarrow.compute as pc  # costs more than the rest of this module, and is hardly ever needed

        near = pc.max_element_wise(pc.min_element_wise(millis, _MILLIS_MAX), -_MILLIS_MAX)
        return near.view(_MILLIS).cast(_MICROS)


def _joined(parts: tuple[pa.Array | None, ...]) -> pa.Array | None:
    return None if parts[0] is None else pa.concat_arrays(parts)
