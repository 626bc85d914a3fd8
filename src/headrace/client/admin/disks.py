"""How full the brokers' disks are, and how many bytes each partition has there (DescribeLogDirs)."""

from headrace.client.admin.call import AdminCall, in_parallel
from headrace.client.admin.results import DiskUsage, known
from headrace.client.errors import error_for
from headrace.wire.messages.describe_log_dirs_request import DescribeLogDirsRequest
from headrace.wire.messages.describe_log_dirs_response import DescribeLogDirsResponse


async def disk_usage(call: AdminCall) -> list[DiskUsage]:
    """Every log directory of every broker."""

    async def attempt() -> list[DiskUsage]:
        await call.cluster.refresh()
        found = await in_parallel(_ask(call, node_id) for node_id in sorted(call.cluster.nodes))
        return [disk for disks in found for disk in disks]

    return await call.retrying(attempt)


async def _ask(call: AdminCall, node_id: int) -> list[DiskUsage]:
    response: DescribeLogDirsResponse = await call.send(node_id, DescribeLogDirsRequest(topics=None))
    if response.error_code:
        raise error_for(response.error_code, about=f"log directories of broker {node_id}")
    return [
        DiskUsage(
            broker_id=node_id,
            path=one.log_dir,
            total_bytes=known(one.total_bytes),
            free_bytes=known(one.usable_bytes),
            sizes={
                (topic.name, partition.partition_index): partition.partition_size
                for topic in one.topics
                for partition in topic.partitions
            },
            error=str(error_for(one.error_code, about=one.log_dir)) if one.error_code else None,
        )
        for one in response.results
    ]
