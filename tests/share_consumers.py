"""The two share consumers that exist elsewhere, behind one face: librdkafka's and Apache Kafka's own for Java.

The Java one is the real class from Kafka's jars. It lives in a JVM of ours, and py4j carries the calls to it.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from confluent_kafka import (
    AcknowledgeType,
    IllegalStateException,
    KafkaException,
    ShareConsumer,
    TopicPartition,
)

from headrace.testing.class_archive import class_path
from headrace.testing.java import find_java
from headrace.testing.kafka_tools import fast_start, java_command
from headrace.wire.errors import ErrorCode

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
WAIT_S = 60.0
POLL_S = 0.2


class NotAllowed(Exception):
    """The client refuses a call: something has to be done before it."""


class Unreadable(Exception):
    """The client cannot read a record's value. The record's offset is all there is."""

    def __init__(self, offset: int) -> None:
        super().__init__(f"the record at offset {offset}")
        self.offset = offset


@dataclass(frozen=True, slots=True)
class Delivery:
    """A record as a client hands it out; `count` is its delivery count, `record` what the client knows it by."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: Any
    count: int
    record: Any


class Commit(NamedTuple):
    """What a client tells of acknowledgements that the broker has answered; `error` is Kafka's name of it."""

    partition: int
    offsets: frozenset[int]
    error: str | None


class ShareClient(Protocol):
    """What the tests do with either client. `commits` grows as the client reports them."""

    commits: list[Commit]

    def poll(self, timeout_s: float = POLL_S) -> list[Delivery]: ...

    def acknowledge(self, delivery: Delivery, kind: int = ACCEPT) -> None: ...

    def commit(self) -> dict[int, str | None]:
        """The error by partition, None where all is well."""
        ...

    def close(self) -> None: ...


def take(client: ShareClient, count: int, *, within_s: float = WAIT_S) -> list[Delivery]:
    """Polls until so many records came in one poll or in several; fails when they do not come in time."""
    taken: list[Delivery] = []
    deadline = time.monotonic() + within_s
    while len(taken) < count:
        assert time.monotonic() < deadline, f"{len(taken)} of {count} records came"
        taken += client.poll()
    return taken


def nothing_comes(client: ShareClient, for_s: float = 0.5) -> bool:
    """Whether a client that is up to date gets nothing for a while."""
    deadline = time.monotonic() + for_s
    while time.monotonic() < deadline:
        if client.poll(0.1):
            return False
    return True


class Librdkafka:
    """confluent-kafka's ShareConsumer, which is librdkafka's."""

    def __init__(self, bootstrap_servers: str, group: str, *topics: str, **settings: Any) -> None:
        self.commits: list[Commit] = []
        self._consumer = ShareConsumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                "log_level": 0,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self._consumer.set_acknowledgement_commit_callback(self._committed)
        self._consumer.subscribe(list(topics))

    def poll(self, timeout_s: float = POLL_S) -> list[Delivery]:
        try:
            messages = list(self._consumer.poll(timeout_s))
        except IllegalStateException as error:
            raise NotAllowed(str(error)) from error
        for message in messages:
            assert message.error() is None, message.error()
        return [
            Delivery(
                str(message.topic()),
                message.partition() or 0,
                message.offset() or 0,
                message.key(),
                message.value(),
                message.delivery_count() or 0,
                message,
            )
            for message in messages
        ]

    def acknowledge(self, delivery: Delivery, kind: int = ACCEPT) -> None:
        self._consumer.acknowledge(delivery.record, AcknowledgeType(kind))

    def commit(self) -> dict[int, str | None]:
        results = self._consumer.commit_sync(WAIT_S)
        return {one.partition: _name_of(error) for one, error in results.items()}

    def close(self) -> None:
        self._consumer.close()

    def _committed(self, offsets: dict[TopicPartition, set[int]], error: KafkaException | None) -> None:
        for one, found in offsets.items():
            self.commits.append(Commit(one.partition, frozenset(found), _name_of(error)))


def _name_of(error: KafkaException | None) -> str | None:
    return None if error is None else ErrorCode(error.args[0].code()).name


class JavaRuntime:
    """A JVM with Kafka's jars and a way to call into it and be called back."""

    def __init__(self) -> None:
        # It comes with PySpark, which a machine without a JVM need not have; librdkafka's tests run there all the same.
        from py4j import java_gateway  # type: ignore[import-untyped]
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        self.error: type[Exception] = Py4JJavaError
        logging = [option for option in java_command("") if option.startswith("-Dlog4j2.")]
        port = java_gateway.launch_gateway(
            classpath=class_path(),
            javaopts=["-Xmx256m", *fast_start(), *logging],
            java_path=str(find_java().executable),
            die_on_exit=True,
        )
        self._gateway = java_gateway.JavaGateway(
            gateway_parameters=java_gateway.GatewayParameters(port=port, auto_convert=True),
            callback_server_parameters=java_gateway.CallbackServerParameters(port=0, daemonize=True),
        )
        server = self._gateway.java_gateway_server
        called_back_at = self._gateway.get_callback_server().get_listening_port()
        server.resetCallbackClient(server.getCallbackClient().getAddress(), called_back_at)
        self.jvm: Any = self._gateway.jvm
        self.kafka: Any = self.jvm.org.apache.kafka

    def close(self) -> None:
        self._gateway.shutdown()


@contextmanager
def java_runtime() -> Iterator[JavaRuntime]:
    runtime = JavaRuntime()
    try:
        yield runtime
    finally:
        runtime.close()


class JavaShareConsumer:
    """Apache Kafka's KafkaShareConsumer. Keys are bytes; `values` is the name of the values' deserializer."""

    def __init__(
        self,
        runtime: JavaRuntime,
        bootstrap_servers: str,
        group: str,
        *topics: str,
        values: str = "ByteArrayDeserializer",
        **settings: Any,
    ) -> None:
        self.commits: list[Commit] = []
        self._java = runtime
        properties = runtime.jvm.java.util.Properties()
        properties.setProperty("bootstrap.servers", bootstrap_servers)
        properties.setProperty("group.id", group)
        for name, value in settings.items():
            properties.setProperty(name.replace("_", "."), str(value))
        serialization = runtime.kafka.common.serialization
        self._consumer = runtime.kafka.clients.consumer.KafkaShareConsumer(
            properties, serialization.ByteArrayDeserializer(), getattr(serialization, values)()
        )
        self._consumer.setAcknowledgementCommitCallback(_Callback(self))
        self._consumer.subscribe(list(topics))

    def poll(self, timeout_s: float = POLL_S) -> list[Delivery]:
        try:
            records = self._consumer.poll(self._java.jvm.java.time.Duration.ofMillis(int(timeout_s * 1_000)))
        except self._java.error as error:
            raise _refusal(error) from error
        return [
            Delivery(
                record.topic(),
                record.partition(),
                record.offset(),
                record.key(),
                record.value(),
                record.deliveryCount().get(),
                record,
            )
            for record in _each(records)
        ]

    def acknowledge(self, delivery: Delivery, kind: int = ACCEPT) -> None:
        self._consumer.acknowledge(delivery.record, self._kind(kind))

    def acknowledge_offset(self, topic: str, partition: int, offset: int, kind: int) -> None:
        """For a record that could not be read."""
        self._consumer.acknowledge(topic, partition, offset, self._kind(kind))

    def commit(self) -> dict[int, str | None]:
        results = self._consumer.commitSync()
        return {
            one.getKey().partition(): self.name_of(one.getValue().orElse(None))
            for one in _each(results.entrySet())
        }

    def lock_timeout_ms(self) -> int:
        return int(self._consumer.acquisitionLockTimeoutMs().orElse(-1))

    def close(self) -> None:
        self._consumer.close()

    def name_of(self, error: Any) -> str | None:
        if error is None:
            return None
        return ErrorCode(self._java.kafka.common.protocol.Errors.forException(error).code()).name

    def _kind(self, kind: int) -> Any:
        return self._java.kafka.clients.consumer.AcknowledgeType.forId(kind)


class _Callback:
    """Java's AcknowledgementCommitCallback."""

    def __init__(self, consumer: JavaShareConsumer) -> None:
        self._consumer = consumer

    def onComplete(self, offsets: Any, error: Any) -> None:  # noqa: N802, the name is Java's
        for one in _each(offsets.entrySet()):
            found = frozenset(_each(one.getValue()))
            self._consumer.commits.append(
                Commit(one.getKey().partition(), found, self._consumer.name_of(error))
            )

    class Java:
        implements = ("org.apache.kafka.clients.consumer.AcknowledgementCommitCallback",)


def _each(collection: Any) -> Iterator[Any]:
    iterator = collection.iterator()
    while iterator.hasNext():
        yield iterator.next()


def _refusal(error: Exception) -> Exception:
    raised: Any = error.java_exception  # type: ignore[attr-defined]
    kind = raised.getClass().getSimpleName()
    if kind == "IllegalStateException":
        return NotAllowed(raised.getMessage())
    if kind == "RecordDeserializationException":
        return Unreadable(raised.offset())
    return RuntimeError(f"{kind}: {raised.getMessage()}")
