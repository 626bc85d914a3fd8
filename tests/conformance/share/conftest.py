"""Share groups on both brokers. The lowest bounds are so low that a lock or a session can run out within a second.

What the brokers do by default stays as it is; a test that wants a short time says so in its group's configs.
"""

from collections.abc import Callable, Iterator

import pytest

from headrace import Broker
from tests.conformance.conftest import SHARE_SETTINGS
from tests.conformance.share.share_client import ShareMember
from tests.conformance.wire_client import WireClient


@pytest.fixture(scope="session")
def headrace() -> Iterator[Broker]:
    """Our broker in process, with its data in memory."""
    with Broker(settings=SHARE_SETTINGS) as broker:
        yield broker


@pytest.fixture
def member(connect: Callable[[], WireClient], unique: str) -> Callable[..., ShareMember]:
    """Makes members of one share group, each with a connection and an id of its own."""

    def make(topic_id: bytes, *, group: str = unique, **options: str) -> ShareMember:
        return ShareMember(connect(), group, topic_id, **options)

    return make
