"""Rights that are taken away and given back while consumers and workers run (Apache Kafka's authorizer)."""

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from headrace import Admin, Producer, Queue, ShareConsumer
from headrace.client.errors import GroupAuthorizationError
from headrace.testing import ApacheKafka
from tests.conformance.steps import wait_for

pytestmark = pytest.mark.needs_kafka


class Cluster:
    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._acls = AdminClient({"bootstrap.servers": servers})

    def new_queue(self, name: str) -> None:
        with Admin(bootstrap_servers=self.servers) as admin:
            admin.create_topic(name, partitions=1)
            admin.set_group_config(name, {"share.auto.offset.reset": "earliest"})
        # From its first rule on, a resource is closed to everybody whom no rule allows.
        self._make(self._rule(ResourceType.GROUP, name, AclOperation.ALL, AclPermissionType.ALLOW))

    def deny(self, group: str) -> None:
        self._make(self._rule(ResourceType.GROUP, group, AclOperation.READ, AclPermissionType.DENY))

    def allow(self, group: str) -> None:
        rule = self._rule(ResourceType.GROUP, group, AclOperation.READ, AclPermissionType.DENY)
        for done in self._acls.delete_acls([AclBindingFilter(*rule)]).values():
            done.result(30)

    def send(self, topic: str, value: str) -> None:
        with Producer(bootstrap_servers=self.servers) as producer:
            producer.send(topic, value).result()

    def _rule(self, *what: object) -> tuple[object, ...]:
        kind, name, operation, permission = what
        return kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", operation, permission

    def _make(self, rule: tuple[object, ...]) -> None:
        for done in self._acls.create_acls([AclBinding(*rule)]).values():
            done.result(30)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with ApacheKafka(settings=settings) as kafka:
        yield Cluster(kafka.bootstrap_servers)


def test_a_consumer_whose_group_was_denied_raises_and_works_again_when_it_is_allowed(
    cluster: Cluster,
) -> None:
    cluster.new_queue("consumer")
    cluster.send("consumer", "a")
    with ShareConsumer(bootstrap_servers=cluster.servers, group_id="consumer") as consumer:
        consumer.subscribe(["consumer"])
        assert wait_for(lambda: consumer.poll(1.0))
        cluster.deny("consumer")

        def is_denied() -> bool:
            try:
                consumer.poll(0.2)
            except GroupAuthorizationError:
                return True
            return False

        assert wait_for(is_denied)
        cluster.allow("consumer")
        cluster.send("consumer", "b")
        assert wait_for(lambda: b"b" in values(consumer))


def values(consumer: ShareConsumer) -> list[bytes]:
    try:
        return [delivery.value for delivery in consumer.poll(0.5)]
    except GroupAuthorizationError:
        return []


def test_a_worker_whose_group_is_denied_from_the_start_ends_with_the_error(cluster: Cluster) -> None:
    cluster.new_queue("closed")
    cluster.deny("closed")
    queue = Queue(cluster.servers, group_id="closed")

    @queue.task("closed")
    async def work(body: bytes) -> None:
        raise AssertionError

    with pytest.raises(GroupAuthorizationError, match="closed"):
        asyncio.run(queue.run_async())
    queue.close()


def test_a_worker_whose_group_is_denied_later_says_so_and_goes_on_when_it_is_allowed(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.new_queue("worker")
    queue = Queue(cluster.servers, group_id="worker")
    seen: list[bytes] = []

    @queue.task("worker")
    async def work(body: bytes) -> None:
        seen.append(body)

    with caplog.at_level(logging.ERROR, "headrace.worker"):
        running = threading.Thread(target=lambda: asyncio.run(queue.run_async()))
        running.start()
        try:
            cluster.send("worker", "a")
            assert wait_for(lambda: seen == [b"a"])
            cluster.deny("worker")
            assert wait_for(lambda: "keeps trying" in caplog.text)
            cluster.allow("worker")
            cluster.send("worker", "b")
            assert wait_for(lambda: seen[-1] == b"b")
        finally:
            queue.stop()
            running.join(60)
    assert not running.is_alive()
    assert "GROUP_AUTHORIZATION_FAILED" in caplog.text
    queue.close()
