"""The client's settings: one declared table, under Kafka's names, checked before anything connects.

The fields of `ClientSettings`, `ShareSettings` and `ProducerSettings` are the table: name (dots for underscores),
default, range or choices, aliases and text stand in one place each, and the parser, the errors and
docs/reference/client-settings.md read them there. `parse` takes Java's names, librdkafka's, or keyword arguments with
underscores:

    ShareSettings.parse({"bootstrap.servers": "localhost:9092"}, group_id="mailers", max_poll_records="100")

What it cannot use it refuses, with the name, the value and the cure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Any, NamedTuple, Self

from headrace.base.jaas import parse_jaas
from headrace.base.names import nearest
from headrace.base.settings import INT_MAX
from headrace.base.tables import FieldError, FieldSetting, rows, setting
from headrace.client.errors import ConfigError
from headrace.client.settings_refused import (
    NO_EFFECT,
    REFUSED,
    REFUSED_FOR_PRODUCERS,
    REFUSED_FOR_SHARE_GROUPS,
    REFUSED_VALUES,
)
from headrace.share.modes import AcquireMode
from headrace.wire.security import SaslMechanism, SecurityProtocol

DAY_MS = 86_400_000
STORE_TYPES = ("PEM", "PKCS12", "JKS")
_PROVIDER = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
_TOKEN_URL = re.compile(r"https://|file:/|http://(localhost|127\.0\.0\.1|\[::1\])[:/]")


class AcknowledgementMode(Enum):
    IMPLICIT = "implicit"
    EXPLICIT = "explicit"


class Acks(Enum):
    ALL = "all"
    LEADER = "1"
    NONE = "0"


class CompressionType(Enum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


DEFAULT_CLIENT_ID = "headrace"


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """What every client needs: where the brokers are, how to get in, how long to wait."""

    bootstrap_servers: tuple[Address, ...] = setting(
        (),
        "Brokers to ask first, `host:port` with commas between them; the others are found through them.",
        aliases=("metadata.broker.list",),
        allowed_text="`host:port`, …",
    )
    client_id: str = setting(
        DEFAULT_CLIENT_ID,
        "A name for this client in the brokers' logs, quotas and metrics. Share consumers and workers add their host "
        "and process to the default: `headrace@web-3:812`, `mail.send@web-3:812`.",
    )
    client_rack: str = setting("", "The rack or zone this client is in.")
    request_timeout_ms: int = setting(
        30_000,
        "How long to wait for a response before the connection is closed.",
        minimum=1,
        maximum=INT_MAX,
        aliases=("socket.timeout.ms",),
    )
    default_api_timeout_ms: int = setting(
        60_000,
        "How long a call may take, with all its retries, if it has no timeout of its own.",
        minimum=1,
        maximum=INT_MAX,
    )
    retry_backoff_ms: int = setting(
        100,
        "First wait before a failed request is tried again; it doubles from try to try.",
        minimum=1,
        maximum=300_000,
    )
    retry_backoff_max_ms: int = setting(1_000, "Longest wait between two tries.", minimum=1, maximum=300_000)
    reconnect_backoff_ms: int = setting(
        50,
        "First wait before a broker that could not be reached is tried again; it doubles from try to try.",
        minimum=1,
        maximum=3_600_000,
    )
    reconnect_backoff_max_ms: int = setting(
        1_000, "Longest wait between two tries to reach a broker.", minimum=1, maximum=3_600_000
    )
    metadata_max_age_ms: int = setting(
        300_000,
        "The maximum age of the metadata of brokers and partition leaders before it is refreshed.",
        minimum=1,
        maximum=DAY_MS,
        aliases=("topic.metadata.refresh.interval.ms",),
    )
    connections_max_idle_ms: int = setting(
        540_000,
        "A connection that was not used for this long is closed; -1 keeps it.",
        minimum=-1,
        maximum=INT_MAX,
    )
    socket_connection_setup_timeout_ms: int = setting(
        10_000,
        "How long a connection may take until it can be used: TCP, TLS, versions and SASL.",
        minimum=1,
        maximum=INT_MAX,
    )
    receive_message_max_bytes: int = setting(
        128 * 1024 * 1024,
        "The largest answer taken from a broker; a larger one ends the connection.",
        minimum=1024,
        maximum=INT_MAX,
    )
    security_protocol: SecurityProtocol = setting(  # noqa: RUF009
        SecurityProtocol.PLAINTEXT, "Whether the listener speaks TLS (`SSL`) and asks for a login (`SASL_`)."
    )
    ssl_truststore_location: str = setting(
        "",
        "File with the certificates of the authorities to trust (PEM, or a PKCS12 or JKS store); without one, those of "
        "the system.",
        aliases=("ssl.ca.location",),
    )
    ssl_truststore_certificates: str = setting(
        "", "The same as PEM text in the setting itself.", aliases=("ssl.ca.pem",)
    )
    ssl_truststore_password: str = setting("", "Password of a PKCS12 or JKS truststore.", is_secret=True)
    ssl_truststore_type: str = setting(
        "PEM", "`PEM`, `PKCS12` or `JKS`. Not needed: the content of the file shows what it is."
    )
    ssl_keystore_location: str = setting(
        "",
        "File with this client's private key and certificate chain (PEM, or a PKCS12 or JKS store), for mutual TLS.",
    )
    ssl_keystore_password: str = setting("", "Password of a PKCS12 or JKS keystore.", is_secret=True)
    ssl_keystore_type: str = setting(
        "PEM", "`PEM`, `PKCS12` or `JKS`. Not needed: the content of the file shows what it is."
    )
    ssl_keystore_certificate_chain: str = setting(
        "", "This client's certificate chain as PEM text.", aliases=("ssl.certificate.pem",)
    )
    ssl_keystore_key: str = setting(
        "", "This client's private key as PEM text.", aliases=("ssl.key.pem",), is_secret=True
    )
    ssl_certificate_location: str = setting("", "PEM file with this client's certificate chain alone.")
    ssl_key_location: str = setting("", "PEM file with this client's private key alone.")
    ssl_key_password: str = setting("", "Password of the private key.", is_secret=True)
    ssl_endpoint_identification_algorithm: str = setting(
        "https",
        "`https` checks that the broker's certificate is for its host name; empty does not check.",
    )
    enable_ssl_certificate_verification: bool = setting(
        True, "`false` trusts any certificate. Only for trying things out: anybody can then be the broker."
    )
    sasl_mechanism: SaslMechanism = setting(  # noqa: RUF009
        SaslMechanism.PLAIN, "How to log in, where security.protocol says SASL.", aliases=("sasl.mechanisms",)
    )
    sasl_username: str = setting("", "The name to log in with.")
    sasl_password: str = setting("", "The password to log in with.", is_secret=True)
    sasl_jaas_config: str = setting(
        "",
        "User name and password as for Java clients: "
        '`…ScramLoginModule required username="alice" password="secret";`',
        is_secret=True,
    )
    sasl_oauthbearer_token_provider: str = setting(
        "",
        "With OAUTHBEARER: `module:function` names a function of yours that returns a token, plain or `async`. It is "
        "called for every login.",
    )
    sasl_oauthbearer_token_endpoint_url: str = setting(
        "",
        "With OAUTHBEARER: where to get a token. `https://…` uses the client credentials grant; `file:///…` is a file "
        "with the token.",
    )
    sasl_oauthbearer_client_credentials_client_id: str = setting(
        "", "The client ID for the token endpoint.", aliases=("sasl.oauthbearer.client.id",)
    )
    sasl_oauthbearer_client_credentials_client_secret: str = setting(
        "",
        "The client secret for the token endpoint.",
        aliases=("sasl.oauthbearer.client.secret",),
        is_secret=True,
    )
    sasl_oauthbearer_scope: str = setting("", "The scope to ask the token endpoint for.")
    sasl_oauthbearer_extensions: str = setting(
        "", "With OAUTHBEARER: SASL extensions, `name=value` with commas between them."
    )

    @classmethod
    def parse(cls, given: Mapping[str, Any] | None = None, /, **keywords: Any) -> Self:
        """Settings from a mapping of Kafka's names, keyword arguments, or both; ConfigError for what is wrong."""
        if given is not None and not isinstance(given, Mapping):
            raise ConfigError(
                f"settings must be a mapping such as {{'bootstrap.servers': 'host:9092'}}, got {given!r}; "
                "to give only the address, write bootstrap_servers='host:9092'"
            )
        values: dict[str, Any] = {}
        for key, value in [*(given or {}).items(), *keywords.items()]:
            name = str(key).replace("_", ".")
            rule_name = _NAMES.get(name)
            if rule_name is None:
                cls._refuse_or_pass_over(name, value)
                continue
            if value is None:
                continue
            if values.get(rule_name, value) != value:
                raise ConfigError(f"{rule_name} is given twice, with two values; keep one of them")
            values[rule_name] = value
        own = {row.name: (field, row) for field, row in rows(cls).items()}
        known = {own[name]: value for name, value in values.items() if name in own}
        settings = cls(**{field: _convert(field, row, value) for (field, row), value in known.items()})
        settings._check()
        return settings

    @classmethod
    def _refuse_or_pass_over(cls, name: str, value: object) -> None:
        _refuse_or_pass_over(name, value)

    def _check(self) -> None:
        """Rules that bind several settings together."""
        if not self.bootstrap_servers:
            raise ConfigError("bootstrap.servers is missing; set it to host:port of one or more brokers")
        for first, most in (
            ("retry_backoff_ms", "retry_backoff_max_ms"),
            ("reconnect_backoff_ms", "reconnect_backoff_max_ms"),
        ):
            if getattr(self, first) > getattr(self, most):
                # As in Java: the smaller of the two is then a wait that does not grow.
                object.__setattr__(self, first, getattr(self, most))
        for name in ("ssl_truststore_type", "ssl_keystore_type"):
            if getattr(self, name).upper() not in STORE_TYPES:
                raise ConfigError(
                    f"{name.replace('_', '.')}={getattr(self, name)!r}; allowed are {', '.join(STORE_TYPES)}"
                )
        if self.ssl_endpoint_identification_algorithm not in ("", "https", "none"):
            raise ConfigError(
                f"ssl.endpoint.identification.algorithm={self.ssl_endpoint_identification_algorithm!r}; "
                "allowed are https, and none or nothing to leave the host name unchecked"
            )
        if self.security_protocol.has_sasl:
            self._check_sasl()

    def _check_sasl(self) -> None:
        if self.sasl_mechanism is SaslMechanism.OAUTHBEARER:
            self._check_oauthbearer()
            return
        if self.sasl_jaas_config:
            username, password = _read_jaas(self.sasl_jaas_config, self.sasl_mechanism)
            for name, value in (("sasl_username", username), ("sasl_password", password)):
                if getattr(self, name) not in ("", value):
                    raise ConfigError(
                        f"{name.replace('_', '.')} differs from sasl.jaas.config; keep one of them"
                    )
                object.__setattr__(self, name, value)
        for name in ("sasl_username", "sasl_password"):
            if not getattr(self, name):
                raise ConfigError(
                    f"{name.replace('_', '.')} is missing; security.protocol={self.security_protocol.value} needs "
                    "sasl.username and sasl.password, or sasl.jaas.config"
                )

    def _check_oauthbearer(self) -> None:
        provider, url = self.sasl_oauthbearer_token_provider, self.sasl_oauthbearer_token_endpoint_url
        if self.sasl_jaas_config:
            raise ConfigError(
                "sasl.jaas.config is not read for OAUTHBEARER; set sasl.oauthbearer.token.provider, or "
                "sasl.oauthbearer.token.endpoint.url and the client's ID and secret "
                "(sasl.oauthbearer.client.credentials.client.id, .client.secret)"
            )
        if bool(provider) == bool(url):
            raise ConfigError(
                "sasl.mechanism=OAUTHBEARER needs a token: set either sasl.oauthbearer.token.provider=module:function "
                "or sasl.oauthbearer.token.endpoint.url"
            )
        if provider and not _PROVIDER.fullmatch(provider):
            raise ConfigError(
                f"sasl.oauthbearer.token.provider={provider!r}; expected module:function, such as mycompany.auth:token"
            )
        if url and not _TOKEN_URL.match(url):
            raise ConfigError(
                f"sasl.oauthbearer.token.endpoint.url={url!r}; expected https://…, or file:///… for a file with the "
                "token. The client's secret would be sent in the clear by http"
            )
        if url and not url.startswith("file:"):
            for name in ("id", "secret"):
                if not getattr(self, f"sasl_oauthbearer_client_credentials_client_{name}"):
                    raise ConfigError(
                        f"sasl.oauthbearer.client.credentials.client.{name} is missing; the token endpoint asks for it"
                    )
        if not all("=" in each for each in self.sasl_oauthbearer_extensions.split(",") if each.strip()):
            raise ConfigError(
                f"sasl.oauthbearer.extensions={self.sasl_oauthbearer_extensions!r}; expected name=value, several with "
                "commas between them"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSettings(ClientSettings):
    """What a share consumer needs beside: its group, how it acknowledges, how much it fetches."""

    group_id: str = setting("", "The share group to join. Needed.")
    share_acknowledgement_mode: AcknowledgementMode = setting(  # noqa: RUF009
        AcknowledgementMode.IMPLICIT,
        "`implicit` accepts what a poll returned at the next poll or commit; `explicit` leaves it to you.",
    )
    share_acquire_mode: AcquireMode = setting(  # noqa: RUF009
        AcquireMode.BATCH_OPTIMIZED,
        "`batch_optimized` acquires whole record batches and reads ahead; `record_limit` acquires never more than "
        "max.poll.records, so that no record waits in a busy member.",
    )
    max_poll_records: int = setting(500, "The most records one poll returns.", minimum=1, maximum=INT_MAX)
    max_poll_interval_ms: int = setting(
        300_000,
        "A member that does not poll for this long leaves the group and joins again at its next poll.",
        minimum=1,
        maximum=INT_MAX,
    )
    fetch_min_bytes: int = setting(
        1,
        "The broker waits until it has this much, or fetch.max.wait.ms is over.",
        minimum=0,
        maximum=INT_MAX,
    )
    fetch_max_bytes: int = setting(
        52_428_800, "About the most bytes one fetch returns.", minimum=1, maximum=INT_MAX
    )
    fetch_max_wait_ms: int = setting(
        500,
        "How long the broker may hold a fetch back while it has too little.",
        minimum=0,
        maximum=INT_MAX,
        aliases=("fetch.wait.max.ms",),
    )
    check_crcs: bool = setting(True, "Whether the checksum of every record batch is held against its bytes.")
    auto_renew: bool = setting(
        False, "Renews the locks of records that are handed out and not yet acknowledged (KIP-1222)."
    )
    auto_renew_max_ms: int = setting(
        3_600_000,
        "How long auto.renew keeps the lock of one record after it was handed out.",
        minimum=1,
        maximum=INT_MAX,
    )
    max_unacknowledged: int = setting(
        0,
        "How many records may be held unacknowledged over several polls; 0 is Java's rule, that all records of a "
        "poll are acknowledged before the next one.",
        minimum=0,
        maximum=1_000_000,
    )

    def _check(self) -> None:
        super(ShareSettings, self)._check()
        if not self.group_id:
            raise ConfigError("group.id is missing; set it to the name of the share group to join")
        if self.max_unacknowledged and self.share_acknowledgement_mode is AcknowledgementMode.IMPLICIT:
            raise ConfigError(
                f"max.unacknowledged={self.max_unacknowledged} needs share.acknowledgement.mode=explicit: "
                "in implicit mode every poll acknowledges the records of the last one"
            )
        if self.auto_renew and self.share_acknowledgement_mode is AcknowledgementMode.IMPLICIT:
            raise ConfigError(
                "auto.renew=true needs share.acknowledgement.mode=explicit: "
                "locks are renewed until a record is acknowledged, which is yours to say"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSettings(ClientSettings):
    """What a producer needs beside: how it batches, how long it tries, how much it buffers."""

    acks: Acks = setting(  # noqa: RUF009
        Acks.ALL,
        "Which replicas must have a record before it counts as sent: `all` in-sync replicas, the leader (`1`), "
        "or none (`0`).",
        aliases=("request.required.acks",),
    )
    enable_idempotence: bool = setting(
        True,
        "Whether retries are free of duplicates and keep the order. Needs acks=all; acks=1 and acks=0 turn it off.",
    )
    compression_type: CompressionType = setting(  # noqa: RUF009
        CompressionType.NONE, "How batches are compressed.", aliases=("compression.codec",)
    )
    linger_ms: int = setting(
        0,
        "How long a batch waits for more records before it is sent. Also at 0, records that are sent while earlier "
        "ones are on their way share a batch.",
        minimum=0,
        maximum=INT_MAX,
        aliases=("queue.buffering.max.ms",),
    )
    batch_size: int = setting(
        524_288, "The most bytes of records in one batch, before compression.", minimum=0, maximum=INT_MAX
    )
    max_request_size: int = setting(
        1_048_576,
        "The largest record, and the most bytes of records in one request.",
        minimum=0,
        maximum=INT_MAX,
        aliases=("message.max.bytes",),
    )
    buffer_memory: int = setting(
        33_554_432,
        "The most bytes of records that wait to be acknowledged. When it is full, `send` waits for max.block.ms.",
        minimum=1,
        maximum=2**40,
    )
    max_block_ms: int = setting(
        60_000,
        "How long `send` waits for room in the buffer, and a record for the topic's metadata.",
        minimum=0,
        maximum=INT_MAX,
    )
    delivery_timeout_ms: int = setting(
        120_000,
        "A record that is not acknowledged within this time, with all retries, has failed.",
        minimum=1,
        maximum=INT_MAX,
        aliases=("message.timeout.ms",),
    )
    max_in_flight_requests_per_connection: int = setting(
        5,
        "How many requests may be on their way to one broker.",
        minimum=1,
        maximum=5,
        aliases=("max.in.flight",),
    )
    transactional_id: str = setting(
        "", "Makes the producer transactional. A second producer of the same name fences the first."
    )
    transaction_timeout_ms: int = setting(
        60_000,
        "The coordinator aborts a transaction that is open for longer than this.",
        minimum=1,
        maximum=INT_MAX,
    )

    @classmethod
    def _refuse_or_pass_over(cls, name: str, value: object) -> None:
        """A file of settings may serve a producer and a consumer: what only a consumer has is passed over."""
        if name in REFUSED_FOR_PRODUCERS:
            raise ConfigError(f"{name} cannot be used: {REFUSED_FOR_PRODUCERS[name]}")
        if name not in REFUSED_FOR_SHARE_GROUPS:
            _refuse_or_pass_over(name, value)

    @classmethod
    def from_client(cls, settings: ClientSettings, **changes: Any) -> Self:
        """A producer for whom another client's settings hold as well."""
        common = {each.name: getattr(settings, each.name) for each in fields(ClientSettings)}
        return cls(**common, **changes)

    @property
    def is_idempotent(self) -> bool:
        return self.enable_idempotence and self.acks is Acks.ALL

    def _check(self) -> None:
        super(ProducerSettings, self)._check()
        if self.transactional_id and not self.is_idempotent:
            raise ConfigError(
                f"transactional.id={self.transactional_id!r} needs acks=all and enable.idempotence=true; "
                f"acks is {self.acks.value}, enable.idempotence is {str(self.enable_idempotence).lower()}"
            )
        if self.delivery_timeout_ms < self.linger_ms:
            raise ConfigError(
                f"delivery.timeout.ms={self.delivery_timeout_ms} is shorter than linger.ms={self.linger_ms}: "
                "records would fail before they are sent"
            )


_NAMES = {
    spelling: row.name
    for table in (ShareSettings, ProducerSettings)
    for row in rows(table).values()
    for spelling in (row.name, *row.aliases)
}
"""Every spelling of a setting, and the name it stands for."""


def _refuse_or_pass_over(name: str, value: object) -> None:
    if name in NO_EFFECT:
        return
    if name in REFUSED_FOR_SHARE_GROUPS:
        raise ConfigError(
            f"{name}={value!r} cannot be set when using a share group: {REFUSED_FOR_SHARE_GROUPS[name]}"
        )
    if name in REFUSED:
        raise ConfigError(f"{name} cannot be used: {REFUSED[name]}")  # the value may be a password
    near = nearest(name, _NAMES)
    hint = f"; did you mean {near}?" if near else "; docs/reference/client-settings.md lists them all"
    raise ConfigError(f"unknown setting {name or repr(name)}{hint}")


def _convert(field: str, row: FieldSetting, value: object) -> Any:
    if field == "bootstrap_servers":
        return _to_addresses(row.name, value)
    try:
        return row.read(value)
    except FieldError as error:
        cure = REFUSED_VALUES.get((row.name, str(value).strip().upper()))
        raise ConfigError(f"{error}; {cure}" if cure else str(error)) from None


def _to_addresses(name: str, value: Any) -> tuple[Address, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple, set, frozenset)):
        raise ConfigError(
            f"{name}={value!r}; expected host:port, several with commas between them or in a list"
        )
    addresses = tuple(_to_address(name, part) for part in parts if str(part).strip())
    if not addresses:
        raise ConfigError(f"{name}={value!r} names no broker; expected host:port")
    return tuple(dict.fromkeys(addresses))


def _to_address(name: str, part: Any) -> Address:
    if isinstance(part, Address):
        return part
    text = str(part).strip()
    text = re.sub(r"^[A-Za-z_]+://", "", text)  # PLAINTEXT://host:9092, as in the brokers' listeners
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ConfigError(f"{name}: each must be host:port, such as localhost:9092, got {part!r}")
    return Address(host, int(port))


def _read_jaas(text: str, mechanism: SaslMechanism) -> tuple[str, str]:
    """Name and password of a JAAS login, as Java's clients are given them."""
    wanted = "PlainLoginModule" if mechanism is SaslMechanism.PLAIN else "ScramLoginModule"
    expected = (
        f"expected `org.apache.kafka.common.security.{wanted.removesuffix('LoginModule').lower()}.{wanted} required "
        'username="…" password="…";`'
    )
    try:
        module, options = parse_jaas(text)
    except ValueError:
        raise ConfigError(f"sasl.jaas.config cannot be read; {expected}") from None
    if module != wanted:
        raise ConfigError(
            f"sasl.jaas.config names {module}, which does not fit sasl.mechanism={mechanism.value}; {expected}"
        )
    if "username" not in options or "password" not in options:
        raise ConfigError(f"sasl.jaas.config lacks username or password; {expected}")
    return options["username"], options["password"]
