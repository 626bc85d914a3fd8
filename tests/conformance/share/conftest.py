"""Share groups on both brokers, with bounds so low that a lock or a session can run out within a second.

What the brokers do by default stays as it is; a test that wants a short time says so in its group's configs.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from headrace.testing import ApacheKafka
from tests.conformance.conftest import SETTINGS
from tests.conformance.share.share_client import ShareMember, wait_until_share_coordinators_are_ready
from tests.conformance.steps import wait_until_coordinators_are_ready
from tests.conformance.wire_client import WireClient

if TYPE_CHECKING:
    from headrace import Broker

SESSIONS_MAX = 250
SHARE_SETTINGS = {
    **SETTINGS,
    "group.share.min.record.lock.duration.ms": 1_000,
    "group.share.min.session.timeout.ms": 100,
    "group.share.min.heartbeat.interval.ms": 50,
    "group.share.assignment.interval.ms": 0,
    "group.share.max.share.sessions": SESSIONS_MAX,
    "log.cleaner.backoff.ms": 100,
}


@pytest.fixture(scope="session")
def headrace() -> "Iterator[Broker]":
    """Our broker in process, for this folder alone."""
    from headrace import Broker

    with Broker(settings=SHARE_SETTINGS) as broker:
        yield broker


@pytest.fixture(scope="session")
def apache() -> Iterator[ApacheKafka]:
    """An Apache Kafka for this folder alone, all of whose coordinators are awake."""
    with ApacheKafka(settings=SHARE_SETTINGS) as cluster:
        with WireClient(cluster.bootstrap_servers) as wire:
            wait_until_coordinators_are_ready(wire)
            wait_until_share_coordinators_are_ready(wire)
        yield cluster


@pytest.fixture
def member(connect: Callable[[], WireClient], unique: str) -> Callable[..., ShareMember]:
    """Makes members of one share group, each with a connection and an id of its own."""

    def make(topic_id: bytes, *, group: str = unique, **options: str) -> ShareMember:
        return ShareMember(connect(), group, topic_id, **options)

    return make
