"""Our share consumers on both brokers."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from headrace.client.sync import ShareConsumer
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.share.conftest import headrace

__all__ = ["headrace"]

NewConsumer = Callable[..., ShareConsumer]


@pytest.fixture
def consumer(broker: BrokerUnderTest, unique: str) -> Iterator[NewConsumer]:
    """Makes consumers of one share group that read the topic of its name; all are closed at the end of the test."""
    with ExitStack() as stack:

        def make(*topics: str, **settings: Any) -> ShareConsumer:
            made = ShareConsumer(
                bootstrap_servers=broker.bootstrap_servers, **{"group_id": unique, **settings}
            )
            stack.callback(made.close)
            made.subscribe(topics or [unique])
            return made

        yield make
