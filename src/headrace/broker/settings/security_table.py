"""Settings of listeners, TLS and SASL: Kafka 4.3's names and defaults.

Every one of them can be set for a single listener, as `listener.name.LISTENER.SETTING` with the listener's name in
lower case, and those of SASL for one mechanism of a listener, as `listener.name.LISTENER.MECHANISM.SETTING`. What Kafka
can do and this broker cannot is refused by name, not ignored: a broker must not be less secure than its settings say.
"""

import socket
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial

from headrace.base.settings import ConfigType, Value
from headrace.broker.settings.setting import Scope, ScopedSetting, row

LISTENER_PREFIX = "listener.name."
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOL_MAP = "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL"
PRINCIPAL_BUILDER = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
OAUTH_VALIDATOR = "OAuthBearerValidatorCallbackHandler"
JWT_VALIDATORS = tuple(
    f"org.apache.kafka.common.security.oauthbearer.{name}"
    for name in ("DefaultJwtValidator", "BrokerJwtValidator")
)
OWN_CLASSES = "Apache Kafka's own class"
STORE_TYPES = ("PEM", "PKCS12", "JKS")
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
NAMES_MAX = 1024
"""Names of single listeners' settings that are remembered: clients may ask for any."""


def _refuse_mechanisms(value: Value) -> str | None:
    for name in value if isinstance(value, tuple) else ():
        if name not in (*MECHANISMS, "GSSAPI"):
            return f"{name} is not supported; choose from {', '.join(MECHANISMS)}"
    return None


def _refuse_tls_versions(value: Value) -> str | None:
    for name in value if isinstance(value, tuple) else ():
        if name not in TLS_VERSIONS:
            return f"{name} is not supported; choose from {', '.join(TLS_VERSIONS)}"
    return None


@lru_cache(8)
def parse_overrides(text: str) -> dict[str, int]:
    """Limits by address of HOST:NUMBER pairs with commas; ValueError for anything else.

    A name stands for the addresses that it has when the setting is read, as in Kafka.
    """
    found = {}
    for pair in filter(None, (each.strip() for each in text.split(","))):
        host, _, number = pair.rpartition(":")
        if not host or not number.isdigit():
            raise ValueError(f"{pair!r} is not HOST:NUMBER")
        try:
            addresses = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise ValueError(f"{host!r} has no address: {error}") from None
        found.update({str(address[0]): int(number) for *_, address in addresses})
    return found


def _refuse_overrides(value: Value) -> str | None:
    try:
        parse_overrides(str(value))
    except ValueError as error:
        return str(error)
    return None


def _only(*names: str) -> Callable[[Value], str | None]:
    def check(value: Value) -> str | None:
        if not value or str(value).rpartition(".")[2] in {name.rpartition(".")[2] for name in names}:
            return None
        return "this broker cannot load custom classes; remove the setting"

    return check


_row = partial(row, Scope.BROKER)

_LISTENERS = (
    _row(
        "listener.security.protocol.map", ConfigType.STRING, PROTOCOL_MAP,
        "How each listener is secured: NAME:PROTOCOL pairs. The four protocols are names of listeners, too. As in "
        "Kafka, it cannot be changed for listeners that are open, so an altered value has no effect here.",
        is_dynamic=True,
    ),
    _row(
        "controller.listener.names", ConfigType.LIST, (),
        "Listeners of Kafka's controller, which this broker does not open.", is_internal=True,
    ),
    _row(
        "max.connections.per.ip.overrides", ConfigType.STRING, "",
        "Limits in place of max.connections.per.ip for single hosts: HOST:NUMBER pairs with commas.",
        is_dynamic=True, check=_refuse_overrides, allowed_text="HOST:NUMBER pairs with commas",
    ),
    _row(
        "connection.failed.authentication.delay.ms", ConfigType.INT, 100,
        "A failed login is answered, and its connection closed, after this time.", minimum=0,
    ),
    _row(
        "principal.builder.class", ConfigType.CLASS, PRINCIPAL_BUILDER,
        "How a principal is built from a login. Only Kafka's default is supported.", is_dynamic=True, is_internal=True,
        check=_only(PRINCIPAL_BUILDER), allowed_text=OWN_CLASSES,
    ),
)  # fmt: skip

_TLS = (
    _row(
        "ssl.keystore.type", ConfigType.STRING, "JKS",
        "The type of the key store: PEM, PKCS12 or JKS. The broker detects it from the content.",
        choices=STORE_TYPES,
    ),
    _row(
        "ssl.keystore.location", ConfigType.STRING, None,
        "The file with the listener's private key and certificate chain. It is read again when it changes.",
    ),
    _row("ssl.keystore.password", ConfigType.PASSWORD, None, "The password of a PKCS12 or JKS key store."),
    _row("ssl.key.password", ConfigType.PASSWORD, None, "The password of the private key."),
    _row("ssl.keystore.key", ConfigType.PASSWORD, None, "The private key as PEM text, in place of a file."),
    _row(
        "ssl.keystore.certificate.chain", ConfigType.PASSWORD, None,
        "The certificate chain as PEM text, in place of a file.",
    ),
    _row(
        "ssl.truststore.type", ConfigType.STRING, "JKS",
        "The type of the trust store: PEM, PKCS12 or JKS. The broker detects it from the content.",
        choices=STORE_TYPES,
    ),
    _row(
        "ssl.truststore.location", ConfigType.STRING, None,
        "The file with the authorities whose client certificates are accepted. It is read again when it changes.",
    ),
    _row("ssl.truststore.password", ConfigType.PASSWORD, None, "The password of a PKCS12 or JKS trust store."),
    _row(
        "ssl.truststore.certificates", ConfigType.PASSWORD, None,
        "The authorities' certificates as PEM text, in place of a file.",
    ),
    _row(
        "ssl.client.auth", ConfigType.STRING, "none",
        "Whether clients show a certificate: `required`, `requested` or `none`. Listeners with SASL do not ask "
        "for one unless the setting is made for that listener.",
        choices=("required", "requested", "none"), is_dynamic=True,
    ),
    _row(
        "ssl.enabled.protocols", ConfigType.LIST, TLS_VERSIONS, "The TLS versions that clients may use.",
        is_dynamic=True, check=_refuse_tls_versions,
    ),
    _row(
        "ssl.cipher.suites", ConfigType.LIST, (),
        "The cipher suites of TLS 1.2 that clients may use, by Java's names or OpenSSL's; empty for OpenSSL's choice.",
        is_dynamic=True,
    ),
    _row(
        "ssl.principal.mapping.rules", ConfigType.STRING, "DEFAULT",
        "How a certificate's name becomes a user's: `RULE:PATTERN/REPLACEMENT/[LU]` and `DEFAULT`, with commas; "
        "the first that matches counts.",
    ),
    _row(
        "ssl.engine.factory.class", ConfigType.CLASS, None, "Custom classes are not loaded.",
        is_dynamic=True, is_internal=True, check=_only(), allowed_text="none",
    ),
)  # fmt: skip

_SASL = (
    _row(
        "sasl.enabled.mechanisms", ConfigType.LIST, ("GSSAPI",),
        "The mechanisms that clients may log in with: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER. Kafka's "
        "default, GSSAPI, is not supported, so a listener with SASL has to set it.",
        is_dynamic=True, check=_refuse_mechanisms,
    ),
    _row(
        "sasl.jaas.config", ConfigType.PASSWORD, None,
        "A mechanism's JAAS line, set as `listener.name.LISTENER.MECHANISM.sasl.jaas.config`. For PLAIN it has the "
        "users and their passwords: `...PlainLoginModule required user_alice=\"secret\";`.",
    ),
    _row(
        "sasl.server.callback.handler.class", ConfigType.CLASS, None,
        "For OAUTHBEARER, Kafka's OAuthBearerValidatorCallbackHandler. Custom classes are not loaded.",
        is_internal=True, check=_only(OAUTH_VALIDATOR), allowed_text=OWN_CLASSES,
    ),
    _row(
        "sasl.oauthbearer.jwt.validator.class", ConfigType.CLASS, JWT_VALIDATORS[0],
        "How tokens are checked. Only Kafka's default is supported.", is_internal=True,
        check=_only(*JWT_VALIDATORS), allowed_text=OWN_CLASSES,
    ),
    _row(
        "sasl.server.max.receive.size", ConfigType.INT, 512 << 10,
        "Largest request of a client that has not logged in. A connection that announces more is closed.", minimum=1,
    ),
    _row(
        "connections.max.reauth.ms", ConfigType.LONG, 0,
        "How long a login lasts. Clients log in again on the same connection before it ends; a connection that has "
        "not is closed. 0: for as long as the connection, or the token, lasts.",
    ),
    _row(
        "sasl.oauthbearer.jwks.endpoint.url", ConfigType.STRING, None,
        "The keys that tokens are signed with: an https: or file: URL of a JWKS document.",
    ),
    _row(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", ConfigType.LONG, 3_600_000,
        "How often the keys are read again.", minimum=1,
    ),
    _row("sasl.oauthbearer.expected.issuer", ConfigType.STRING, None, "The `iss` that a token must have."),
    _row(
        "sasl.oauthbearer.expected.audience", ConfigType.LIST, None, "A token's `aud` must have one of these.",
    ),
    _row(
        "sasl.oauthbearer.clock.skew.seconds", ConfigType.INT, 30,
        "By how much the clock of a token's issuer may differ.", minimum=0,
    ),
    _row("sasl.oauthbearer.scope.claim.name", ConfigType.STRING, "scope", "The claim that has a token's scopes."),
    _row("sasl.oauthbearer.sub.claim.name", ConfigType.STRING, "sub", "The claim that has the user's name."),
)  # fmt: skip

_WITHOUT_EFFECT = frozenset(
    {
        "principal.builder.class",
        "sasl.server.callback.handler.class",
        "sasl.oauthbearer.jwt.validator.class",
        "sasl.oauthbearer.scope.claim.name",
        "ssl.engine.factory.class",
        "ssl.keystore.type",
        "ssl.truststore.type",
    }
)
SECURITY_SETTINGS: tuple[ScopedSetting, ...] = tuple(
    replace(setting, has_effect=setting.name not in _WITHOUT_EFFECT)
    for setting in (*_LISTENERS, *_TLS, *_SASL)
)
_STORES = """
    ssl.key.password ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
    ssl.keystore.type ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type
"""
ONLY_BY_LISTENER = frozenset(_STORES.split())
"""What Kafka takes on a running broker for single listeners only."""
_TAKEN_BY_ONE = """
    listeners listener.security.protocol.map principal.builder.class sasl.enabled.mechanisms sasl.jaas.config
    ssl.cipher.suites ssl.client.auth ssl.enabled.protocols ssl.engine.factory.class
"""
_OF_ONE_BROKER = frozenset(_TAKEN_BY_ONE.split())
_LIMITS = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})
_DYNAMIC_BY_MECHANISM = frozenset({"sasl.jaas.config"})
_BY_LISTENER = {setting.name: setting for setting in (*_TLS, *_SASL)}
_BY_MECHANISM = {setting.name: setting for setting in _SASL}


def add_to_listeners(*settings: ScopedSetting) -> None:
    """Settings of other tables that single listeners may have, too."""
    _BY_LISTENER.update({setting.name: setting for setting in settings})


def without_listener(name: str) -> str:
    """The setting of `listener.name.LISTENER.[MECHANISM.]SETTING`; other names as they are."""
    if not name.startswith(LISTENER_PREFIX):
        return name
    rest = name.removeprefix(LISTENER_PREFIX).partition(".")[2]
    mechanism, _, of_mechanism = rest.partition(".")
    return of_mechanism if mechanism.upper() in MECHANISMS else rest


def is_of_one_broker(name: str) -> bool:
    """Whether Kafka takes a dynamic setting for one broker only: all of listeners, but for the limits of theirs."""
    return name in _OF_ONE_BROKER or (
        name.startswith(LISTENER_PREFIX) and without_listener(name) not in _LIMITS
    )


@lru_cache(NAMES_MAX)
def setting_of_listener(name: str) -> ScopedSetting | None:
    """The row for `listener.name.LISTENER.[MECHANISM.]SETTING`, or None where there is no such setting."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    listener, _, rest = name.removeprefix(LISTENER_PREFIX).partition(".")
    bare = without_listener(name)
    setting = (_BY_LISTENER if bare == rest else _BY_MECHANISM).get(bare)
    where = name.removesuffix(bare)
    if setting is None or not listener or where != where.lower():
        return None
    is_dynamic = setting.is_dynamic or setting.name in ONLY_BY_LISTENER | _DYNAMIC_BY_MECHANISM
    return replace(setting, name=name, is_dynamic=is_dynamic)
