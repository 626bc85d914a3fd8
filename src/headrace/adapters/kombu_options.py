"""What a broker URL and `transport_options` say."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.adapters.kombu_records import broadcast_prefix, topic_of
from headrace.base.names import nearest
from headrace.client.arguments import is_int
from headrace.client.settings import ClientSettings
from headrace.worker.later import control_topic, later_topic
from headrace.worker.outbox import REQUEST_BYTES_MAX

DEFAULT_GROUP = "celery"
DEFAULT_PORT = 9092
SECONDS_MAX = 86_400
HELD_MAX = 65_535
"""As many messages as AMQP can prefetch."""
_TIMES = {"max.block.ms": 30_000, "delivery.timeout.ms": 30_000}
"""A task that cannot be sent is an error after this time. Callers of Celery's `delay` wait for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KombuOptions:
    """The options of a connection. The fields from `group_id` on are the names of transport options."""

    servers: str
    group_id: str = DEFAULT_GROUP
    topic_prefix: str = ""
    partitions: int = -1
    replication_factor: int = -1
    topic_config: Mapping[str, Any] = field(default_factory=dict)
    client: Mapping[str, Any] = field(default_factory=dict)
    hold_max: float = 10.0
    max_held: int = 1_000
    get_timeout: float = 5.0

    @property
    def given(self) -> dict[str, Any]:
        """Client settings."""
        return {
            "bootstrap.servers": self.servers,
            **_TIMES,
            "max.request.size": REQUEST_BYTES_MAX,
            **self.client,
        }

    def topic(self, queue: str) -> str:
        topic = topic_of(self.topic_prefix + queue)
        own = (later_topic(self.group_id), control_topic(self.group_id))
        if topic in own or topic.startswith(broadcast_prefix(self.group_id)):
            raise ValueError(
                f"the topic of queue {queue!r} would be {topic}, which group {self.group_id} uses itself; rename it"
            )
        return topic


def read_options(client: Any) -> KombuOptions:
    """The options of a `kombu.Connection`. ValueError says what is wrong with them."""
    given = dict(client.transport_options or {})
    known = KombuOptions.__dataclass_fields__.keys() - {"servers"}
    for name in given.keys() - known:
        near = nearest(str(name), known)
        if near is not None:
            raise ValueError(f"unknown transport option {name!r}; did you mean {near!r}?")
    own = {name: given[name] for name in known & given.keys()}
    if client.ssl:
        raise ValueError(
            "broker_use_ssl is not supported; set broker_transport_options="
            "{'client': {'security.protocol': 'SSL', ...}}"
        )
    space = (client.virtual_host or "").strip("/")
    if space:
        own = {"group_id": space, "topic_prefix": f"{space}.", **own}
    own["client"] = _client_settings(client, own.get("client", {}))
    host, port = client.hostname or "localhost", client.port or DEFAULT_PORT
    options = KombuOptions(servers=f"[{host}]:{port}" if ":" in host else f"{host}:{port}", **own)
    _check(options)
    return options


def _client_settings(client: Any, given: Any) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise ValueError(f"client must be a dict of client settings, got {given!r}")
    settings = {str(name).replace("_", "."): value for name, value in given.items()}
    if client.userid:
        if not str(settings.get("security.protocol", "")).upper().startswith("SASL"):
            raise ValueError(
                "the broker URL has a user name, but SASL is not enabled; set "
                "broker_transport_options={'client': {'security.protocol': 'SASL_SSL', 'sasl.mechanism': ...}}"
            )
        password = client.password() if callable(client.password) else client.password
        settings = {"sasl.username": client.userid, "sasl.password": password or "", **settings}
    return settings


def _check(options: KombuOptions) -> None:
    for name in ("group_id", "topic_prefix"):
        if not isinstance(getattr(options, name), str):
            raise ValueError(f"{name} must be a string, got {getattr(options, name)!r}")
    if not options.group_id:
        raise ValueError("group_id must be a non-empty string, got ''")
    if not isinstance(options.topic_config, Mapping):
        raise ValueError(f"topic_config must be a dict of topic settings, got {options.topic_config!r}")
    for name, least, most in (
        ("partitions", 1, 10_000),
        ("replication_factor", 1, 32_767),
        ("max_held", 1, HELD_MAX),
    ):
        value = getattr(options, name)
        if not is_int(value) or not (least <= value <= most or (value == -1 and name != "max_held")):
            raise ValueError(f"{name} must be a whole number from {least} to {most}, got {value!r}")
    for name in ("hold_max", "get_timeout"):
        value = getattr(options, name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= SECONDS_MAX:
            raise ValueError(f"{name} must be from 0 to {SECONDS_MAX} seconds, got {value!r}")
    ClientSettings.parse(options.given)
