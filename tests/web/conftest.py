"""A dashboard over our broker in process, with a state that is known to the record.

`kitchen` works on `orders`: of the first partition's 20 records one member was given 12; it accepted 3-5, released
6-7 and rejected 8, which went to `dlq.orders`. The others it holds. Nobody has asked for records 12-19 yet.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from headrace import Broker
from headrace.cli.web_schedule import schedules_of
from headrace.client.settings import ClientSettings
from headrace.share.states import RecordState
from headrace.web.embedded import EmbeddedView
from headrace.web.options import WebOptions
from headrace.web.server import WebServer
from headrace.wire.records import NewRecord, build_batch
from tests.conformance.share.share_client import (
    ACCEPT,
    RECORD_LIMIT,
    REJECT,
    RELEASE,
    ShareMember,
    set_group,
    start_at,
)
from tests.conformance.steps import GROUP, new_topic, now_ms, produced, set_config, wait_for
from tests.conformance.wire_client import WireClient

ORDERS, KITCHEN, DEAD = "orders", "kitchen", "dlq.orders"
RECORDS = 20
BROKER = {
    "errors.deadletterqueue.auto.create.topics.enable": "true",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.assignment.interval.ms": "0",
}


class World:
    """A broker, its dashboard, and clients to set the scene with."""

    def __init__(self, broker: Broker, closing: ExitStack, **options: Any) -> None:
        self.broker = broker
        self._closing = closing
        self.wire = self.connect()
        settings = {"bootstrap.servers": broker.bootstrap_servers, "default.api.timeout.ms": "3000"}
        self.web = closing.enter_context(
            WebServer(
                ClientSettings.parse(settings),
                WebOptions(**{"sample_s": 0.2, **options}),
                EmbeddedView(broker),
                schedules_of(settings),
            )
        )
        self.http = closing.enter_context(httpx.Client(base_url=self.web.url, timeout=10))

    def connect(self, client_id: str = "kitchen-help") -> WireClient:
        return self._closing.enter_context(WireClient(self.broker.bootstrap_servers, client_id=client_id))

    def get(self, path: str, **parameters: object) -> Any:
        """An answer of the API that must be good."""
        answer = self.http.get(
            "/api/v1" + path, params={key: str(value) for key, value in parameters.items()}
        )
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refused(self, path: str, **parameters: object) -> tuple[int, str]:
        answer = self.http.get(
            "/api/v1" + path, params={key: str(value) for key, value in parameters.items()}
        )
        return answer.status_code, answer.json()["error"]

    def post(self, path: str, **wanted: object) -> httpx.Response:
        token = self.get("/session")["csrf_token"]
        return self.http.post("/api/v1" + path, json=wanted, headers={"x-csrf-token": token})

    def do(self, path: str, **wanted: object) -> Any:
        answer = self.post(path, **wanted)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def produce(self, topic: str, *values: str, partition: int = 0) -> int:
        records = [
            NewRecord(b"customer-%d" % number, value.encode(), [("source", b"shop")], now_ms())
            for number, value in enumerate(values)
        ]
        return produced(self.wire, topic, build_batch(records), partition=partition)

    def serve_orders(self) -> ShareMember:
        """The known state; returns the member that holds records."""
        topic_id = new_topic(self.wire, ORDERS, partitions=2)
        set_group(self.wire, KITCHEN, auto_offset_reset="earliest")
        set_config(self.wire, GROUP, KITCHEN, "errors.deadletterqueue.topic.name", DEAD)
        set_config(self.wire, GROUP, KITCHEN, "errors.deadletterqueue.copy.record.enable", "true")
        start_at(self.wire, KITCHEN, ORDERS, {0: 0, 1: 0})
        for batch in (range(12), range(12, RECORDS)):
            self.produce(ORDERS, *(f'{{"order": {number}}}' for number in batch))
        member = ShareMember(self.connect("cook-1"), KITCHEN, topic_id)
        member.join(ORDERS)
        member.take(12, 0, max_records=12, share_acquire_mode=RECORD_LIMIT)
        assert member.ack((3, 5, ACCEPT), (6, 7, RELEASE), (8, 8, REJECT)) == 0
        wait_for(lambda: self.broker.share_state(KITCHEN)[ORDERS, 0].count_of(RecordState.ARCHIVED) == 1)
        self.wait_for_sample()
        return member

    def leave(self, member: ShareMember) -> None:
        member.close()
        member.heartbeat(-1)
        self.wait_for_sample()

    def wait_for_sample(self) -> None:
        """Until the sampler has looked once more, from beginning to end."""
        seen = {self.get("/overview")["sampled_at"]}

        def look() -> bool:
            seen.add(self.get("/overview")["sampled_at"])
            return len(seen) > 2

        wait_for(look)


NewWorld = Callable[..., World]


@pytest.fixture
def open_world() -> Iterator[NewWorld]:
    with ExitStack() as closing:
        broker = closing.enter_context(Broker(settings=BROKER))
        yield lambda **options: World(broker, closing, **options)


@pytest.fixture
def world(open_world: NewWorld) -> World:
    return open_world()
