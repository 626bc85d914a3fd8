"""How fast a Spark task turns record batches into Arrow, in one process and without a broker, by processor time.

    python -m bench.spark_decode [lists]

With `lists` records are read one by one, as without NumPy.
Prints rows a second for batches of 1, 150 and 8,500 records of 100 bytes, whole and with every third record left out.
"""

import sys
import time
from collections.abc import Sequence

from headrace.client.columns import ColumnBuilder
from headrace.spark.runs import Run
from headrace.wire.batches import read_header
from headrace.wire.records import NewRecord, build_batch

ROWS = 300_000
ROUNDS = 3
WHOLE = (Run(0, ROWS, 1),)
TWO_OF_THREE = tuple(Run(first, first + 1, 1) for first in range(0, ROWS, 3))


def make_batches(records: int) -> list[bytes]:
    new = [NewRecord(b"key%d" % index, b"x" * 100, (), 1_700_000_000_000 + index) for index in range(records)]
    return [build_batch(new, base_offset=number * records) for number in range(ROWS // records)]


def rows_per_second(batches: Sequence[bytes], runs: Sequence[Run], *, is_vectorized: bool) -> float:
    """The best of a few rounds: what the code can do, not what the machine was doing besides."""
    best = 0.0
    for _ in range(ROUNDS):
        began = time.process_time()
        builder = ColumnBuilder(include_headers=False, is_vectorized=is_vectorized)
        builder.want("orders", 0, runs)
        rows = sum(built.num_rows for batch in batches for built in builder.stream(read_header(batch), batch))
        rows += sum(built.num_rows for built in builder.rest())
        best = max(best, rows / (time.process_time() - began))
    return best


def main() -> None:
    is_vectorized = sys.argv[1:] != ["lists"]
    for records in (1, 150, 8_500):
        batches = make_batches(records)
        for name, runs in (("whole", WHOLE), ("two of three", TWO_OF_THREE)):
            rate = rows_per_second(batches, runs, is_vectorized=is_vectorized)
            print(f"{records:>5} a batch, {name}: {rate / 1e6:.2f}M rows/s")


if __name__ == "__main__":
    main()
