"""DescribeLogDirs: sizes of partitions in the one data directory."""

import shutil

from headrace.broker.handlers import describe_log_dirs
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
from headrace.wire.messages.describe_log_dirs_response import DescribeLogDirsResponse


def described(admin, topics):
    (result,) = admin.ask(DescribeLogDirsRequest(topics=topics), DescribeLogDirsResponse).results
    sizes = {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in result.topics
        for partition in topic.partitions
    }
    return result, sizes


def test_every_partition_is_listed_with_its_size(admin):
    admin.topics.create("orders", partitions=2, configs={})
    admin.write("orders", b"one")
    result, sizes = described(admin, None)
    assert (result.error_code, result.log_dir) == (0, admin.disk.name)
    assert sizes == {("orders", 0): admin.topics.require("orders", 0).log.size, ("orders", 1): 0}
    assert sizes["orders", 0] > 61


def test_only_the_asked_partitions_are_listed_and_unknown_ones_left_out(admin):
    admin.topics.create("orders", partitions=2, configs={})
    asked = [
        DescribableLogDirTopic(topic="orders", partitions=[1, 7]),
        DescribableLogDirTopic(topic="x", partitions=[0]),
    ]
    assert described(admin, asked)[1] == {("orders", 1): 0}
    assert described(admin, [])[1] == {}


def test_the_volume_of_a_broker_in_memory_is_the_machines_memory(admin):
    result, _ = described(admin, None)
    assert 0 < result.usable_bytes < result.total_bytes or result.total_bytes == -1


def test_the_volume_of_a_data_directory_is_the_file_systems(admin, tmp_path):
    usage = shutil.disk_usage(tmp_path)
    assert describe_log_dirs._volume(str(tmp_path))[0] == usage.total


def test_a_failed_disk_says_so(admin):
    admin.failure = OSError("gone")
    result, sizes = described(admin, None)
    assert (result.error_code, sizes) == (ErrorCode.KAFKA_STORAGE_ERROR, {})
