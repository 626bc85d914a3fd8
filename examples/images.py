"""Image jobs of very uneven length on ONE partition: the small ones do not wait behind the large ones.

A consumer group reads a partition in order, so three large pictures at its head would hold up everything behind them.
In a share group each record goes to whoever is free. The pictures are scaled down in other processes
(`pool="process"`), because the work is all computing.

    python examples/images.py [-b HOST:PORT]
"""

import tempfile
import threading
import time
import uuid
from pathlib import Path

import msgspec
from support import account, broker_address

from headrace.worker import Queue

LARGE, SMALL = 3, 40
THUMBNAIL = 16


class Picture(msgspec.Struct):
    name: str
    size: int
    folder: str


# The name of the topic is new every time, so that the example can run again on the same broker.
run_id = uuid.uuid4().hex[:8]
queue = Queue("localhost:9092", group_id=f"images-{run_id}")


@queue.task(
    f"images-{run_id}",
    concurrency=LARGE + 1,
    pool="process",
    timeout=120,
    dead_letter=f"images-{run_id}.dead",
)
def make_thumbnail(picture: Picture) -> None:
    """Scales a gray picture down by averaging; pure Python on purpose, so that a large one takes its time."""
    pixels = [bytes((x ^ y) & 255 for x in range(picture.size)) for y in range(picture.size)]
    block = picture.size // THUMBNAIL
    small = bytearray()
    for top in range(0, block * THUMBNAIL, block):
        for left in range(0, block * THUMBNAIL, block):
            total = sum(sum(row[left : left + block]) for row in pixels[top : top + block])
            small.append(total // block**2)
    path = Path(picture.folder) / f"{picture.name}.pgm"
    with path.open("xb") as file:  # x: a second run for the same picture would fail here, and be seen
        file.write(b"P5 %d %d 255\n" % (THUMBNAIL, THUMBNAIL) + small)


def main() -> None:
    with broker_address(__doc__) as servers, tempfile.TemporaryDirectory() as folder:
        queue.configure(bootstrap_servers=servers)
        for number in range(LARGE):
            make_thumbnail.send(Picture(f"large-{number}", 1_600, folder), key="one partition")
        for number in range(SMALL):
            make_thumbnail.send(Picture(f"small-{number:02}", 64, folder), key="one partition")
        print(f"sent {LARGE} large pictures and, behind them in the same partition, {SMALL} small ones")

        began = time.perf_counter()
        order = work_off(Path(folder))
        print(f"all {len(order)} thumbnails after {time.perf_counter() - began:.1f} s")
        last_large = max((place for place, name in enumerate(order) if name.startswith("large")), default=0)
        early = sum(name.startswith("small") for name in order[:last_large])
        print(f"{early} of {SMALL} small ones were ready before the last large one")
        (metrics,) = queue.metrics().values()
        account(
            every_picture_has_its_thumbnail=len(order) == LARGE + SMALL,
            each_was_made_once=metrics.succeeded == metrics.received == LARGE + SMALL,
            small_ones_did_not_wait_for_large_ones=early > 0,
        )


def work_off(folder: Path) -> list[str]:
    """Runs the worker until every thumbnail is there; their names in the order of their making."""

    def watch() -> None:
        while len(list(folder.glob("*.pgm"))) < LARGE + SMALL:
            time.sleep(0.05)
        queue.stop()

    threading.Thread(target=watch, daemon=True).start()
    queue.run()
    return [path.stem for path in sorted(folder.glob("*.pgm"), key=lambda path: path.stat().st_mtime_ns)]


if __name__ == "__main__":
    main()
