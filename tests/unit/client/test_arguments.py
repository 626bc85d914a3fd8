"""Arguments that clients check themselves: True and False are no integers."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from headrace.client.admin.groups import alter_consumer_group_offsets
from headrace.client.admin.offsets import as_timestamp
from headrace.client.admin.topics import create_partitions, create_topic
from headrace.client.arguments import require_limit
from headrace.client.producing.record import EntryMaker, ProducerRecord
from headrace.client.settings import ProducerSettings
from headrace.worker import Backoff, Batch

NOWHERE: Any = None
MAKER = EntryMaker(ProducerSettings.parse(bootstrap_servers="127.0.0.1:1"))


@pytest.mark.parametrize(
    ("give", "words"),
    [
        (
            lambda: MAKER.make_of("t", ProducerRecord(b"", partition=True), None),
            "partition must be an int >= 0",
        ),
        (
            lambda: MAKER.make_of("t", ProducerRecord(b"", timestamp=True), None),
            "timestamp must be milliseconds",
        ),
        (lambda: require_limit("limit", True), "limit must be an int >= 1 or None, got True"),
        (lambda: as_timestamp(True), "the time must be milliseconds since 1970"),
        (lambda: Backoff(tries=True), "tries must be an int >= 1 or None, got True"),
        (lambda: Batch(max=True), "max must be"),
    ],
)
def test_a_truth_value_is_refused_where_an_integer_is_wanted(give: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        give()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: create_topic(NOWHERE, "t", partitions=True, replication_factor=1, configs={}),
            "create_topic: partitions must be an int, got True",
        ),
        (lambda: create_partitions(NOWHERE, "t", True), "create_partitions: total must be an int, got True"),
        (
            lambda: alter_consumer_group_offsets(NOWHERE, "g", {("t", 0): True}),
            "t-0: an offset must be an int >= 0, got True",
        ),
    ],
)
def test_an_admin_call_refuses_it_before_it_asks_a_broker(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        asyncio.run(call())


def test_integers_are_taken() -> None:
    now = int(time.time() * 1000)
    entry = MAKER.make_of("t", ProducerRecord(b"", partition=1, timestamp=now), None)
    assert (entry.partition, entry.timestamp) == (1, now)
    require_limit("limit", 1)
    require_limit("limit", None)
