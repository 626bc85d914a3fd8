"""kcat (Debian's, on an old librdkafka): produce, consume, list, query, and read as a group."""

import json
import subprocess

import pytest

from tests.compat.confluent import produce

pytestmark = pytest.mark.needs_kcat


def kcat(bootstrap_servers: str, *arguments: str, stdin: str = "") -> str:
    command = ["kcat", "-b", bootstrap_servers, *arguments]
    answer = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_records_go_in_and_come_out_with_keys_and_headers(bootstrap_servers: str, unique: str) -> None:
    kcat(
        bootstrap_servers,
        "-P",
        "-t",
        unique,
        "-K",
        ":",
        "-H",
        "name=value",
        "-z",
        "lz4",
        stdin="a:1\nb:2\nc:3\n",
    )
    shown = kcat(bootstrap_servers, "-C", "-t", unique, "-e", "-q", "-f", "%p %o %k %s %h\n")
    assert shown.splitlines() == ["0 0 a 1 name=value", "0 1 b 2 name=value", "0 2 c 3 name=value"]
    last = kcat(bootstrap_servers, "-C", "-t", unique, "-o", "-1", "-e", "-q")
    assert last == "3\n"


def test_the_cluster_is_listed(bootstrap_servers: str, unique: str) -> None:
    produce(bootstrap_servers, unique, ["one"])
    listed = json.loads(kcat(bootstrap_servers, "-L", "-J", "-t", unique))
    assert [(node["id"], node["name"]) for node in listed["brokers"]] == [(1, bootstrap_servers)]
    (topic,) = listed["topics"]
    assert (topic["topic"], len(topic["partitions"])) == (unique, 1)
    assert topic["partitions"][0] == {
        "partition": 0,
        "leader": 1,
        "replicas": [{"id": 1}],
        "isrs": [{"id": 1}],
    }


def test_offsets_are_found_by_time(bootstrap_servers: str, unique: str) -> None:
    sent = produce(bootstrap_servers, unique, ["one", "two", "three"])
    for query, offset in [(sent[0].timestamp()[1], 0), (-1, 3), (-2, 0)]:
        assert kcat(bootstrap_servers, "-Q", "-t", f"{unique}:0:{query}") == f"{unique} [0] offset {offset}\n"


def test_a_group_reads_to_the_end_and_goes_on_there(bootstrap_servers: str, unique: str) -> None:
    from_start = ("-X", "auto.offset.reset=earliest", "-X", "heartbeat.interval.ms=200")
    produce(bootstrap_servers, unique, ["one", "two"])
    assert sorted(kcat(bootstrap_servers, "-q", "-e", *from_start, "-G", unique, unique).split()) == [
        "one",
        "two",
    ]
    produce(bootstrap_servers, unique, ["three"])
    assert kcat(bootstrap_servers, "-q", "-e", *from_start, "-G", unique, unique).split() == ["three"]


def test_a_transaction_is_committed_by_kcat(bootstrap_servers: str, unique: str) -> None:
    kcat(bootstrap_servers, "-P", "-t", unique, "-X", f"transactional.id={unique}", stdin="one\ntwo\n")
    shown = kcat(bootstrap_servers, "-C", "-t", unique, "-e", "-q", "-X", "isolation.level=read_committed")
    assert shown.split() == ["one", "two"]
