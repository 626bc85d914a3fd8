"""DescribeLogDirs (35), v1-v5: the data directory, how full its volume is, and how large each partition is.

A null list of topics asks for all. There is one directory and one replica of each partition, so nothing ever
lags and nothing moves between directories.
"""

import os
import shutil
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.topics import Partition
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.describe_log_dirs_request import DescribeLogDirsRequest
from headrace.wire.messages.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (1, 5)
UNKNOWN_BYTES = -1


def handle(core: "BrokerCore", request: DescribeLogDirsRequest, call: Call) -> DescribeLogDirsResponse:
    disk = core.logs.disk
    if core.failure is not None:
        failed = DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=disk.name)
        return DescribeLogDirsResponse(results=[failed])
    total_bytes, usable_bytes = _memory() if disk.is_volatile else _volume(disk.name)
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                log_dir=disk.name,
                topics=_topics(core, request),
                total_bytes=total_bytes,
                usable_bytes=usable_bytes,
            )
        ]
    )


def _volume(path: str) -> tuple[int, int]:
    usage = shutil.disk_usage(path)
    return usage.total, usage.free


def _memory() -> tuple[int, int]:
    """A broker that keeps everything in memory has the machine's memory for its volume."""
    try:
        page_bytes = os.sysconf("SC_PAGE_SIZE")
        return os.sysconf("SC_PHYS_PAGES") * page_bytes, os.sysconf("SC_AVPHYS_PAGES") * page_bytes
    except ValueError:  # not every system counts its free pages
        return UNKNOWN_BYTES, UNKNOWN_BYTES


def _topics(core: "BrokerCore", request: DescribeLogDirsRequest) -> list[DescribeLogDirsTopic]:
    if request.topics is None:
        asked: dict[str, set[int] | None] = {topic.name: None for topic in core.topics}
    else:
        asked = {}
        for wanted in request.topics:
            indexes = asked.setdefault(wanted.topic, set())
            assert indexes is not None
            indexes.update(wanted.partitions)
    found = []
    for name, indexes in asked.items():
        topic = core.topics.get(name)
        partitions = [] if topic is None else topic.partitions
        described = [_describe(each) for each in partitions if indexes is None or each.index in indexes]
        if described:
            found.append(DescribeLogDirsTopic(name=name, partitions=described))
    return found


def _describe(partition: Partition) -> DescribeLogDirsPartition:
    log = partition.opened_log  # one that was never opened was never written
    return DescribeLogDirsPartition(partition_index=partition.index, partition_size=log.size if log else 0)
