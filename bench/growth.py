"""How acquire and acknowledge grow with records in flight, members and partitions: `python -m bench.growth`.

The broker's own core in memory, without sockets: a member fetches 500 records and acknowledges the last 500 in the same
request, over and over, while so many records are in flight, so many members take turns, or its session has so many
partitions. Prints a table, and draws it with `--svg FILE`. Our broker only: it is about the shape, not about a ratio.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from headrace.broker.call import Call
from headrace.broker.clock import SystemClock
from headrace.broker.core import BrokerCore
from headrace.broker.runner import Done, Work
from headrace.broker.settings import Settings
from headrace.broker.topics import Topic
from headrace.log.memory_disk import MemoryDisk
from headrace.wire.messages.share_fetch_request import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from headrace.wire.messages.share_fetch_response import ShareFetchResponse
from headrace.wire.records import NewRecord, build_batch
from headrace.wire.share_state import ShareKey

GROUP = "growth"
PER_BATCH = 100
PER_FETCH = 500
TURNS = 200
IN_FLIGHT = (1_000, 10_000, 100_000, 1_000_000)
MEMBERS = (1, 8, 64, 200)
PARTITIONS = (1, 10, 100)
WINDOW = 2_000_000
ACCEPT = 1


class AtOnce:
    def run(self, work: Work, done: Done) -> None:
        work()
        done(None)

    run_slow = run


class Rig:
    def __init__(self, *, partitions: int, records: int) -> None:
        self.core = BrokerCore(
            Settings({"group.share.max.partition.max.record.locks": WINDOW}),
            disk=MemoryDisk(),
            metadata_path=None,
            clock=SystemClock(),
            runner=AtOnce(),
            on_failure=lambda error: None,
        )
        group = {"share.auto.offset.reset": "earliest", "share.partition.max.record.locks": str(WINDOW)}
        self.core.settings.replace_group(GROUP, group)
        self.topic: Topic = self.core.topics.create("orders", partitions=partitions, configs={})
        now_ms = self.core.clock.wall_ms()
        batch = build_batch([NewRecord(None, bytes(10), (), now_ms)] * PER_BATCH)
        for partition in self.topic.partitions:
            key = ShareKey(GROUP, self.topic.id, partition.index)
            self.core.share_state.initialize(key, state_epoch=1, start_offset=-1)
            for _ in range(-(-records // PER_BATCH)):
                partition.log.append(batch, now_ms=now_ms)


@dataclass
class Member:
    rig: Rig
    name: str
    epoch: int = 0

    def fetch(
        self, records_max: int, acks: Sequence[tuple[int, int, int]] = ()
    ) -> list[tuple[int, int, int]]:
        """Acknowledges, fetches; what it got as partition, first, last."""
        by_partition: dict[int, list[AcknowledgementBatch]] = {}
        if not self.epoch:
            by_partition = {partition.index: [] for partition in self.rig.topic.partitions}
        for index, first, last in acks:
            by_partition.setdefault(index, []).append(
                AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=(ACCEPT,))
            )
        request = ShareFetchRequest(
            group_id=GROUP,
            member_id=self.name,
            share_session_epoch=self.epoch,
            min_bytes=1,
            max_bytes=1 << 26,
            max_records=records_max,
            batch_size=records_max,
            topics=[
                FetchTopic(
                    topic_id=self.rig.topic.id,
                    partitions=[
                        FetchPartition(partition_index=index, acknowledgement_batches=batches)
                        for index, batches in by_partition.items()
                    ],
                )
            ],
        )
        response = self.rig.core.handle(request, Call(api_version=2))
        self.rig.core.settle()
        assert isinstance(response, ShareFetchResponse)
        assert not response.error_code
        self.epoch += 1
        return [
            (data.partition_index, entry.first_offset, entry.last_offset)
            for topic in response.responses
            for data in topic.partitions
            for entry in data.acquired_records
        ]


def _turns_us(members: Sequence[Member]) -> float:
    """The median time of a fetch with its acknowledgements, the members taking turns."""
    held: dict[str, list[tuple[int, int, int]]] = {member.name: [] for member in members}
    times = []
    for turn in range(TURNS + len(members)):
        member = members[turn % len(members)]
        acks = held[member.name]
        started = time.perf_counter()
        held[member.name] = member.fetch(PER_FETCH, acks)
        if turn >= len(members):
            times.append((time.perf_counter() - started) * 1e6)
    return median(times)


def in_flight_us(count: int) -> float:
    rig = Rig(partitions=1, records=count + (TURNS + 2) * PER_FETCH)
    Member(rig, "holder").fetch(count)
    return _turns_us([Member(rig, "worker")])


def members_us(count: int) -> float:
    rig = Rig(partitions=1, records=(TURNS + 2 * count + 2) * PER_FETCH)
    return _turns_us([Member(rig, f"m{number}") for number in range(count)])


def partitions_us(count: int) -> float:
    rig = Rig(partitions=count, records=-(-(TURNS + 2) * PER_FETCH // count) + PER_FETCH)
    return _turns_us([Member(rig, "worker")])


SERIES: dict[str, tuple[Sequence[int], Callable[[int], float]]] = {
    "records in flight": (IN_FLIGHT, in_flight_us),
    "members": (MEMBERS, members_us),
    "partitions of the session": (PARTITIONS, partitions_us),
}


def draw(figures: dict[str, list[tuple[int, float]]]) -> str:
    """Three panels side by side, each from nothing to the largest figure of all."""
    width, height, top = 300, 220, max(us for points in figures.values() for _, us in points) * 1.15
    panels = []
    for number, (name, points) in enumerate(figures.items()):
        left = 50 + number * width
        step = (width - 80) / max(1, len(points) - 1)
        places = [(left + index * step, 30 + height * (1 - us / top)) for index, (_, us) in enumerate(points)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        panels.append(f'<polyline points="{line}" fill="none" stroke="#2b6cb0" stroke-width="2"/>')
        panels.append(
            f'<line x1="{left}" y1="{30 + height}" x2="{left + width - 70}" y2="{30 + height}" stroke="#888"/>'
        )
        panels.append(f'<text x="{left}" y="20" font-weight="bold">{name}</text>')
        for (x, y), (size, us) in zip(places, points, strict=True):
            panels.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="#2b6cb0"/>')
            panels.append(f'<text x="{x:.1f}" y="{y - 8:.1f}" text-anchor="middle">{us:.0f} us</text>')
            panels.append(f'<text x="{x:.1f}" y="{height + 48}" text-anchor="middle">{size:,}</text>')
    body = "\n".join(panels)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{3 * width + 20}" height="{height + 70}" '
        f'font-family="sans-serif" font-size="11">\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw it there")
    chosen = parser.parse_args()
    figures: dict[str, list[tuple[int, float]]] = {}
    for name, (sizes, measure) in SERIES.items():
        figures[name] = [(size, measure(size)) for size in sizes]
        print(f"{name}: " + ", ".join(f"{size:,}: {us:.0f} us" for size, us in figures[name]), flush=True)
    if chosen.svg is not None:
        chosen.svg.write_text(draw(figures))


if __name__ == "__main__":
    main()
