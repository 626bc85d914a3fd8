"""Where the fields of many records are, found for all records at once with NumPy.

A record is a chain of variable-length integers (varints), so each field begins where the one before it ends. Only the
lengths of the records are followed one by one, and not even those where neighbors have the same length; then each
field is read from all records in one step. For a few hundred records this takes a quarter of the time of reading them
one after the other, for many thousand a tenth.

This is a second reader of what `records.py` reads, and it judges nothing: where anything is unusual, `find_fields`
gives None, and that reader decides what is wrong. NumPy is optional: `load_numpy` says whether there is one.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.wire.batches import Buffer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Bytes = NDArray[np.uint8]

HEADERS_MAX = 64
"""Of one record. The n-th headers of all records are read together, so a record of many would take many steps."""
_RUN_MIN = 16
"""Records of one length in a row that pay for a look at all that may follow."""
_LOOK = 256
"""How far the first of these looks goes."""
_STRETCH_MIN, _STRETCH_MAX = 2, 512
"""Records that are followed one by one between two such looks."""
_VARINT_BITS_MAX = 56


class Parts(NamedTuple):
    """One field of all records: bytes `starts` to `ends` of the data; `is_null` is None where none of them is null."""

    starts: "Numbers"
    ends: "Numbers"
    is_null: "NDArray[np.bool_] | None"


class Fields(NamedTuple):
    """Everything in some records. All arrays but those of the headers have one element for each record."""

    data: bytes
    timestamp_deltas: "Numbers"
    offset_deltas: "Numbers"
    keys: Parts
    values: Parts
    header_counts: "Numbers | None"
    """None: no record has headers."""
    header_keys: Parts | None
    header_values: Parts | None


class _UnusualError(Exception):
    """For the other reader."""


@cache
def load_numpy() -> Any:
    """NumPy, or None."""
    try:
        import numpy
    except ImportError:
        return None
    return numpy


def find_fields(payloads: Sequence[Buffer], counts: Sequence[int]) -> Fields | None:
    """The fields of the records of some batches: their bytes without header and compression, and how many there are.

    None where they are not as usual, not as the counts say, or where a batch lacks the records of some offsets. There
    must be NumPy, and a record in each batch.
    """
    np = load_numpy()
    data = b"".join(payloads)
    try:
        array = np.frombuffer(data, np.uint8)
        starts, ends = _bounds(np, data, array, [*map(len, payloads)], counts)
        return _read(np, data, array, starts, ends, _expected_deltas(tuple(counts)))
    except (IndexError, _UnusualError):
        return None


def _bounds(
    np: Any, data: bytes, array: "Bytes", sizes: Sequence[int], counts: Sequence[int]
) -> "tuple[Numbers, Numbers]":
    """For each record, where it begins behind its length, and where it ends."""
    for may_guess in (True, False):
        places = _places(np, data, array, sizes, counts, may_guess)
        lengths, starts = _varints(np, array, places)
        ends = starts + lengths
        # A place is where the record before it ends. So is the end of a batch.
        if lengths.min() >= 0 and np.array_equal(ends[:-1], places[1:]) and ends[-1] == len(data):
            return starts, ends
    raise _UnusualError


def _places(
    np: Any, data: bytes, array: "Bytes", sizes: Sequence[int], counts: Sequence[int], may_guess: bool
) -> "Numbers":
    """Where records begin, if it guesses right: batches of the same size and count are often laid out alike."""
    parts: list[Numbers] = []
    begin = 0
    for size, count in zip(sizes, counts, strict=True):
        places = _layouts.get((size, count)) if may_guess else None
        if places is None:
            places, is_regular = _follow(np, data, array, begin, begin + size, count)
            places -= begin
            if is_regular:
                if len(_layouts) >= _LAYOUTS_MAX:
                    _layouts.clear()
                _layouts[size, count] = places
        parts.append(places + begin)
        begin += size
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


_LAYOUTS_MAX = 64
_layouts: "dict[tuple[int, int], Numbers]" = {}
"""Where records begin in the last batches whose records have few lengths, by the size and count of the batches. A
wrong guess is found out by `_bounds`."""


def _follow(
    np: Any, data: bytes, array: "Bytes", following: int, end: int, count: int
) -> "tuple[Numbers, bool]":
    """Where the records begin that follow each other from there to the end; and whether most of them have the length
    of the one before."""
    parts: list[Numbers] = []
    in_runs, half = 0, count // 2
    places: list[int] = []
    position = 0
    stretch = _STRETCH_MIN
    while count:
        steps = min(count, stretch)
        count -= steps
        for _ in range(steps):
            position = following
            places.append(position)
            size = data[position]
            if size < 0x80:
                following += (size >> 1) + 1
            elif data[position + 1] < 0x80:
                following += (size - 0x80 + (data[position + 1] << 7) >> 1) + 2
            else:
                following += _long_size(data, position)
        stretch = min(2 * stretch, _STRETCH_MAX)
        size = following - position
        if count >= _RUN_MIN and len(places) > 1 and size == position - places[-2]:
            run = _run(array, data, following, end, size, count)
            if run >= _RUN_MIN:
                parts += np.array(places), np.arange(following, following + run * size, size)
                places = []
                following += run * size
                count -= run
                in_runs += run
                stretch = _STRETCH_MIN
    if places:
        parts.append(np.array(places))
    if following != end:
        raise _UnusualError
    return np.concatenate(parts), in_runs > half


def _run(array: "Bytes", data: bytes, position: int, end: int, size: int, count: int) -> int:
    """How many records from `position` on have that size, which the one before them has."""
    before = position - size
    width = 1
    while data[before + width - 1] >= 0x80:
        width += 1
    found, look = 0, _LOOK
    most = min(count, (end - position) // size)
    while found < most:
        look = min(look, most - found)
        stop = position + look * size
        is_same = array[position:stop:size] == data[before]
        for index in range(1, width):
            is_same &= array[position + index : stop : size] == data[before + index]
        if not is_same.all():
            return found + int(is_same.argmin())
        found += look
        position = stop
        look *= 4
    return found


def _long_size(data: bytes, position: int) -> int:
    """Of a record whose length takes more than two bytes."""
    number = width = 0
    while True:
        byte = data[position + width]
        number |= (byte & 0x7F) << 7 * width
        width += 1
        if byte < 0x80:
            return width + (number >> 1)
        if 7 * width > _VARINT_BITS_MAX:
            raise _UnusualError


class _Deltas(NamedTuple):
    """Offset deltas of batches without gaps: from 0 on in each of them; and how they are written."""

    numbers: "Numbers"
    widths: "Numbers"
    firsts: "Bytes"
    rest: "list[tuple[Numbers, Bytes]]"
    """For the second bytes, and so on: which records have one, and what it is."""


@lru_cache(maxsize=16)
def _expected_deltas(counts: tuple[int, ...]) -> _Deltas:
    np = load_numpy()
    numbers = np.concatenate([np.arange(count) for count in counts])
    left = numbers << 1
    widths = np.ones(len(numbers), np.int64)
    firsts = left.copy()
    rest = []
    written = firsts
    rows = np.arange(len(numbers))
    while (is_longer := left >= 0x80).any():
        written[is_longer] |= 0x80
        rows, left = rows[is_longer], left[is_longer] >> 7
        widths[rows] += 1
        written = left.copy()
        rest.append((rows, written))
    return _Deltas(
        numbers, widths, firsts.astype(np.uint8), [(at, each.astype(np.uint8)) for at, each in rest]
    )


def _pass_deltas(np: Any, array: "Bytes", at: "Numbers", expected: _Deltas) -> "Numbers":
    """Where the offset deltas end, if they are the expected ones."""
    if not np.array_equal(array[at], expected.firsts):
        raise _UnusualError
    for place, (rows, written) in enumerate(expected.rest, 1):
        if not np.array_equal(array[at[rows] + place], written):
            raise _UnusualError
    return at + expected.widths


def _read(
    np: Any, data: bytes, array: "Bytes", starts: "Numbers", ends: "Numbers", deltas: _Deltas
) -> Fields:
    if array[starts].max() >= 0x80:  # the attributes, of which none is in use
        raise _UnusualError
    timestamp_deltas, at = _varints(np, array, starts + 1)
    at = _pass_deltas(np, array, at, deltas)
    keys, at = _slices(np, array, at)
    values, at = _slices(np, array, at)
    counts, at = _varints(np, array, at)
    header_counts = header_keys = header_values = None
    if counts.any():
        header_counts = counts
        header_keys, header_values, at = _headers(np, array, at, counts)
    if not np.array_equal(at, ends):
        raise _UnusualError
    return Fields(
        data, timestamp_deltas, deltas.numbers, keys, values, header_counts, header_keys, header_values
    )


def _headers(np: Any, array: "Bytes", at: "Numbers", counts: "Numbers") -> "tuple[Parts, Parts, Numbers]":
    if counts.min() < 0 or counts.max() > HEADERS_MAX:
        raise _UnusualError
    total = int(counts.sum())
    firsts = np.cumsum(counts) - counts
    key_starts, key_ends, value_starts, value_ends = np.empty((4, total), np.int64)
    is_null = np.zeros(total, np.bool_)
    rows = np.flatnonzero(counts)
    number = 0
    while rows.size:
        places = firsts[rows] + number
        keys, following = _slices(np, array, at[rows])
        if keys.is_null is not None:
            raise _UnusualError
        values, following = _slices(np, array, following)
        key_starts[places], key_ends[places] = keys.starts, keys.ends
        value_starts[places], value_ends[places] = values.starts, values.ends
        if values.is_null is not None:
            is_null[places] = values.is_null
        at[rows] = following
        number += 1
        rows = rows[counts[rows] > number]
    keys = Parts(key_starts, key_ends, None)
    return keys, Parts(value_starts, value_ends, is_null if is_null.any() else None), at


def _slices(np: Any, array: "Bytes", at: "Numbers") -> "tuple[Parts, Numbers]":
    """Fields that begin with their length, -1 for null; and where they end."""
    lengths, starts = _varints(np, array, at)
    shortest = lengths.min()
    if shortest < -1 or lengths.max() > array.size:
        raise _UnusualError
    if shortest >= 0:
        ends = starts + lengths
        return Parts(starts, ends, None), ends
    ends = starts + np.maximum(lengths, 0)
    return Parts(starts, ends, lengths < 0), ends


def _varints(np: Any, array: "Bytes", at: "Numbers") -> "tuple[Numbers, Numbers]":
    """The numbers that begin at these places, and where they end."""
    first = array[at]
    if first.max() < 0x80:
        numbers = first.astype(np.int64)
        return (numbers >> 1) ^ -(numbers & 1), at + 1
    ends = at + 1
    if first.min() >= 0x80:
        second = array[ends]
        if second.max() < 0x80:
            numbers = second.astype(np.int64) << 7 | first & 0x7F
            return (numbers >> 1) ^ -(numbers & 1), at + 2
    numbers = (first & 0x7F).astype(np.int64)
    longer = np.flatnonzero(first >= 0x80)
    bits = 7
    while longer.size:
        if bits > _VARINT_BITS_MAX:
            raise _UnusualError
        following = array[ends[longer]]
        numbers[longer] |= (following & 0x7F).astype(np.int64) << bits
        ends[longer] += 1
        longer = longer[following >= 0x80]
        bits += 7
    return (numbers >> 1) ^ -(numbers & 1), ends
