"""kafka-dump-log on our own files: Apache's reader takes our segments, indexes and internal topics for its own."""

import re
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing import KafkaTools
from tests.compat.confluent import WAIT_S, consumer, produce, take
from tests.compat.conftest import QUICK_GROUPS, HeadraceServer, start_server

pytestmark = pytest.mark.needs_kafka
BATCH = re.compile(r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* isvalid: (\w+)")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[HeadraceServer]:
    """A server of its own, because its files are read after it has stopped."""
    many_entries = {"log.segment.bytes": "1048576", "log.index.interval.bytes": "1000"}
    running = start_server(tmp_path, {**QUICK_GROUPS, **many_entries})
    yield running
    running.process.stop()


def dump(*files: Path, flags: tuple[str, ...] = ()) -> str:
    return KafkaTools("").run("kafka-dump-log", *flags, "--files", ",".join(map(str, files))).stdout


def test_segments_and_indexes_are_read_by_apache_kafka(server: HeadraceServer, unique: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    admin.create_topics([NewTopic(unique, num_partitions=1)])[unique].result(WAIT_S)
    for codec in ("none", "lz4", "zstd"):
        values = [f"{codec} {number} {number * 7919 % 10007:05} " * 20 for number in range(2_000)]
        produce(
            server.bootstrap_servers,
            unique,
            values,
            **{"compression.type": codec, "enable.idempotence": True},
        )
    server.process.stop()
    folder = server.data / f"{unique}-0"
    segments = sorted(folder.glob("*.log"))
    assert len(segments) > 1
    batches = BATCH.findall(dump(*segments, flags=("--deep-iteration",)))
    assert {valid for *_, valid in batches} == {"true"}
    assert sum(int(count) for _, _, count, _ in batches) == 6_000
    assert [int(last) + 1 for _, last, _, _ in batches[:-1]] == [int(base) for base, *_ in batches[1:]]
    indexes = sorted(folder.glob("*.index")) + sorted(folder.glob("*.timeindex"))
    assert len(indexes) == 2 * len(segments)
    entries = dump(*indexes)
    assert len(re.findall(r"^offset: \d+ position: \d+", entries, re.MULTILINE)) > len(segments)
    assert len(re.findall(r"^timestamp: \d+ offset: \d+", entries, re.MULTILINE)) >= len(segments)
    checked = dump(*indexes, flags=("--verify-index-only",)).lower()
    assert "mismatch" not in checked
    assert "out of order" not in checked


def test_transactions_and_group_state_are_decoded_by_apache_kafka(
    server: HeadraceServer, unique: str
) -> None:
    produce(server.bootstrap_servers, unique, ["one", "two"])
    for protocol in ("classic", "consumer"):
        group = f"{unique}-{protocol}"
        with consumer(server.bootstrap_servers, group, **{"group.protocol": protocol}) as source:
            source.subscribe([unique])
            take(source, 2)
            source.commit(asynchronous=False)
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "transactional.id": unique})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(unique, b"three")
    producer.commit_transaction(WAIT_S)
    server.process.stop()
    log = dump(*server.data.glob(f"{unique}-0/*.log"), flags=("--print-data-log",))
    assert "isTransactional: true isControl: true" in log
    assert "endTxnMarker: COMMIT" in log
    offsets = dump(*written(server.data, "__consumer_offsets"), flags=("--offsets-decoder",))
    assert f'"group":"{unique}-classic","topic":"{unique}","partition":0}}}}' in offsets
    assert '"offset":2,"leaderEpoch":0' in offsets
    assert '"protocolType":"consumer"' in offsets
    states = dump(*written(server.data, "__transaction_state"), flags=("--transaction-log-decoder",))
    assert f'"transactionalId":"{unique}"' in states
    assert '"transactionStatus":' in states


def written(data: Path, topic: str) -> list[Path]:
    return [file for file in sorted(data.glob(f"{topic}-*/*.log")) if file.stat().st_size]


def test_share_groups_and_their_state_are_decoded_by_apache_kafka(
    server: HeadraceServer, unique: str
) -> None:
    produce(server.bootstrap_servers, unique, ["one"])
    settings = {"bootstrap.servers": server.bootstrap_servers, "group.id": unique, "client.id": "reader"}
    with closing(ShareConsumer(settings)) as reader:
        reader.subscribe([unique])
        deadline = time.monotonic() + WAIT_S
        while not reader.poll(0.1):
            assert time.monotonic() < deadline, "nothing came"
            produce(server.bootstrap_servers, unique, ["more"])
        reader.commit_sync(WAIT_S)
    server.process.stop()
    journal = dump(*written(server.data, "__consumer_offsets"), flags=("--offsets-decoder",))
    found = re.findall(rf'"type":"(\d+)","data":{{"groupId":"{re.escape(unique)}"', journal)
    assert set(found) == {"10", "11", "12", "13", "14", "15"}, journal
    assert f'"clientId":"reader","clientHost":"/127.0.0.1","subscribedTopicNames":["{unique}"]' in journal
    assert f'"topicName":"{unique}","partitions":[0]' in journal
    state = dump(*written(server.data, "__share_group_state"), flags=("--share-group-state-decoder",))
    assert f'"groupId":"{unique}"' in state
    assert '"deliveryState":2,"deliveryCount":1' in state
