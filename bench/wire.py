"""The little of Kafka's protocol that the driver and the raw client speak by themselves."""

import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.wire.apis import RequestHeader, read_response_header, response_class, write_request_header
from headrace.wire.codec import read_message, write_message
from headrace.wire.errors import ErrorCode
from headrace.wire.message import Message
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.wire.messages.delete_topics_request import DeleteTopicsRequest
from headrace.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headrace.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic

TIMEOUT_S = 30
LATEST = -1
GROUP, SET = 32, 0
_LENGTH = struct.Struct(">i")


class BrokerRefused(Exception):
    """The broker answered with an error, or closed the connection. The run is void."""


def request_frame(request: Message, version: int, correlation_id: int = 0) -> bytearray:
    """A whole request as it goes over the wire; bytes 8 to 12 hold the correlation id."""
    frame = bytearray(4)
    write_request_header(frame, RequestHeader(request.API_KEY, version, correlation_id, "bench"))
    write_message(request, version, frame)
    _LENGTH.pack_into(frame, 0, len(frame) - 4)
    return frame


class Connection:
    """One connection: `ask` for one request at a time, `send` and `receive_for` for more.

    `ca`: the authority that is trusted, of a listener with TLS.
    """

    def __init__(
        self, bootstrap_servers: str, *, timeout_s: float = TIMEOUT_S, ca: Path | None = None
    ) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if ca is not None:
            self.socket = ssl.create_default_context(cafile=ca).wrap_socket(self.socket, server_hostname=host)

    def ask(self, request: Message, version: int) -> Any:
        self.send(request, version)
        return self.receive_for(request, version)

    def send(self, request: Message, version: int) -> None:
        self.socket.sendall(request_frame(request, version))

    def receive_for(self, request: Message, version: int) -> Any:
        """The response to the oldest request that has none yet, which must be this one."""
        frame = bytes(self.receive())
        _, position = read_response_header(request.API_KEY, version, frame)
        response, _ = read_message(response_class(request.API_KEY), version, frame, position)
        return response

    def receive(self) -> bytearray:
        """The next response without its length."""
        (length,) = _LENGTH.unpack(self._exactly(4))
        return self._exactly(length)

    def _exactly(self, count: int) -> bytearray:
        data = bytearray(count)
        view, got = memoryview(data), 0
        while got < count:
            size = self.socket.recv_into(view[got:])
            if not size:
                raise BrokerRefused("the broker closed the connection")
            got += size
        return data

    def close(self) -> None:
        self.socket.close()

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def answers(bootstrap_servers: str) -> bool:
    """Whether a client could begin: ApiVersions is answered, and Metadata names a broker."""
    with (
        contextlib.suppress(OSError, BrokerRefused),
        Connection(bootstrap_servers, timeout_s=5) as connection,
    ):
        request = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
        versions = connection.ask(request, 3)
        return not versions.error_code and bool(connection.ask(MetadataRequest(topics=()), 12).brokers)
    return False


def create_topic(
    connection: Connection, name: str, *, partitions: int, configs: Mapping[str, str] | None = None
) -> None:
    """A topic whose files go at once when it is deleted, so that one round's bytes do not burden the next."""
    wanted = {"file.delete.delay.ms": "0", **(configs or {})}
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in wanted.items()],
    )
    response = connection.ask(CreateTopicsRequest(topics=(topic,), timeout_ms=TIMEOUT_S * 1000), 6)
    _require(response.topics[0].error_code, f"creating {name}")
    _wait_for_leaders(connection, name, partitions)


def _wait_for_leaders(connection: Connection, name: str, partitions: int) -> None:
    request = MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=False)
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        (topic,) = connection.ask(request, 9).topics
        if len([found for found in topic.partitions if not found.error_code]) == partitions:
            return
        time.sleep(0.002)
    raise BrokerRefused(f"{name} has no leaders")


def set_group_config(connection: Connection, group: str, name: str, value: str) -> None:
    config = AlterableConfig(name=name, config_operation=SET, value=value)
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=(config,))
    response = connection.ask(IncrementalAlterConfigsRequest(resources=(resource,)), 1)
    _require(response.responses[0].error_code, f"{name} of group {group}")


def delete_topic(connection: Connection, name: str) -> None:
    response = connection.ask(DeleteTopicsRequest(topic_names=(name,), timeout_ms=TIMEOUT_S * 1000), 4)
    _require(response.responses[0].error_code, f"deleting {name}")


def records_in(connection: Connection, name: str, *, partitions: int) -> int:
    """What the topic holds, by its end offsets."""
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in range(partitions)]
    request = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=name, partitions=wanted),))
    (topic,) = connection.ask(request, 6).topics
    for partition in topic.partitions:
        _require(partition.error_code, f"the end of {name}")
    return sum(int(partition.offset) for partition in topic.partitions)


def _require(error_code: int, what: str) -> None:
    if error_code:
        raise BrokerRefused(f"{what}: {ErrorCode(error_code).name}")
