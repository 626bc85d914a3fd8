"""TLS of one listener: its context from the settings, made anew when settings or files change.

Connections keep the context they began with. A context that cannot be made (a file that is half written, a wrong
password) is logged, and the one in use stays.
"""

import logging
import os
import re
import ssl
from pathlib import Path

from headrace.base.stores import StoreError, is_pem, read_store
from headrace.broker.call import ANONYMOUS
from headrace.broker.security.listeners import BrokerListener
from headrace.broker.security.names import Rule, distinguished_name, map_name, parse_mapping_rules
from headrace.broker.settings import InvalidSettings, Settings
from headrace.wire.tls import AlertingContext, load_identity

logger = logging.getLogger("headrace.broker")

_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
FILES = ("ssl.keystore.location", "ssl.truststore.location")
FILE_BYTES_MAX = 16 << 20
SETTINGS = (
    *FILES,
    "ssl.cipher.suites",
    "ssl.enabled.protocols",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.password",
    "ssl.principal.mapping.rules",
    "ssl.truststore.certificates",
    "ssl.truststore.password",
)
"""What a context is made of, beside ssl.client.auth."""
Stamp = tuple[object, ...]


class ListenerTls:
    def __init__(self, settings: Settings, listener: BrokerListener) -> None:
        """Raises InvalidSettings."""
        self._settings = settings
        self._listener = listener
        self._stamp = self._stamps()
        self.context, self._rules = make_context(settings, listener)

    def refresh(self) -> None:
        """Follows the settings and the files, if they have changed since the last time."""
        stamp = self._stamps()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self.context, self._rules = make_context(self._settings, self._listener)
            logger.info("listener %s: its certificates have been read again", self._listener.name)
        except InvalidSettings as error:
            logger.error("listener %s keeps its certificates: %s", self._listener.name, error)

    def _stamps(self) -> Stamp:
        files = tuple(_stamp(_text(self._settings, self._listener, name)) for name in FILES)
        values = tuple(self._settings.listener_value(self._listener.name, name) for name in SETTINGS)
        return files, values, client_auth(self._settings, self._listener)

    def principal(self, certificate: bytes | None) -> str:
        if certificate is None:
            return ANONYMOUS
        name = map_name(self._rules, distinguished_name(certificate))
        if name is None:
            raise ssl.SSLError("no rule of ssl.principal.mapping.rules applies to the client's certificate")
        return f"User:{name}"


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path) if path else None
    except OSError:
        return None
    return None if found is None else (found.st_ino, found.st_mtime_ns, found.st_size)


def _text(settings: Settings, listener: BrokerListener, name: str) -> str:
    value = settings.listener_value(listener.name, name)
    return "" if value is None else str(value)


def _list(settings: Settings, listener: BrokerListener, name: str) -> tuple[str, ...]:
    value = settings.listener_value(listener.name, name)
    return value if isinstance(value, tuple) else ()


def make_context(settings: Settings, listener: BrokerListener) -> tuple[ssl.SSLContext, list[Rule]]:
    """The context of a listener, and the rules for the names of its clients; raises InvalidSettings."""
    context = AlertingContext(ssl.PROTOCOL_TLS_SERVER)
    # OpenSSL before 3 allows clients that have not logged in to renegotiate without end.
    context.options |= ssl.OP_NO_RENEGOTIATION
    _limit_versions(context, _list(settings, listener, "ssl.enabled.protocols"))
    _limit_ciphers(context, _list(settings, listener, "ssl.cipher.suites"))
    _load_own(context, settings, listener)
    context.verify_mode = _CLIENT_AUTH[client_auth(settings, listener)]
    if context.verify_mode is not ssl.CERT_NONE:
        _trust(context, settings, listener)
    try:
        rules = parse_mapping_rules(_text(settings, listener, "ssl.principal.mapping.rules"))
    except ValueError as error:
        raise InvalidSettings(f"ssl.principal.mapping.rules: {error}") from None
    return context, rules


def client_auth(settings: Settings, listener: BrokerListener) -> str:
    """As in Kafka, a listener with SASL asks for certificates only if the setting is its own."""
    own = f"listener.name.{listener.name.lower()}.ssl.client.auth"
    if listener.protocol.has_sasl and own not in settings.given():
        return "none"
    return _text(settings, listener, "ssl.client.auth")


def _limit_versions(context: ssl.SSLContext, names: tuple[str, ...]) -> None:
    versions = sorted(_VERSIONS[name] for name in names)
    if not versions:
        raise InvalidSettings("ssl.enabled.protocols is empty; set TLSv1.2,TLSv1.3")
    context.minimum_version, context.maximum_version = versions[0], versions[-1]


def _limit_ciphers(context: ssl.SSLContext, suites: tuple[str, ...]) -> None:
    """OpenSSL's choice for TLS 1.3 cannot be limited from Python; a list without its suites leaves TLS 1.2 alone."""
    if not suites:
        return
    newer = [name for name in suites if name.startswith("TLS_") and "_WITH_" not in name]
    older = [openssl_name(name) for name in suites if name not in newer]
    try:
        if older:
            context.set_ciphers(":".join(older))
    except ssl.SSLError:
        raise InvalidSettings(f"ssl.cipher.suites: OpenSSL has none of {', '.join(suites)}") from None
    if not older:
        context.minimum_version = ssl.TLSVersion.TLSv1_3
    if not newer:
        context.maximum_version = ssl.TLSVersion.TLSv1_2


def openssl_name(suite: str) -> str:
    """TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256."""
    exchange, found, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if not found:
        return suite
    cipher = re.sub(r"_(?=\d)", "", cipher, count=1).replace("_CBC", "").replace("_", "-")
    cipher = cipher.replace("POLY1305-SHA256", "POLY1305").replace("CHACHA20-POLY1305", "CHACHA20-POLY1305")
    return cipher if exchange == "RSA" else f"{exchange.replace('_', '-')}-{cipher}"


def _load_own(context: ssl.SSLContext, settings: Settings, listener: BrokerListener) -> None:
    key, chain = (
        _text(settings, listener, name) for name in ("ssl.keystore.key", "ssl.keystore.certificate.chain")
    )
    password = _text(settings, listener, "ssl.key.password")
    location = _text(settings, listener, "ssl.keystore.location")
    name = "ssl.keystore.key and ssl.keystore.certificate.chain"
    if location:
        name = f"ssl.keystore.location={location}"
        data = _read(name, location)
        if is_pem(data):
            key, chain = "", data.decode(errors="replace")
        else:
            key, chain = _own_from_store(settings, listener, name, data)
    elif not key or not chain:
        raise InvalidSettings(
            f"ssl.keystore.location is missing: listener {listener.name} needs a private key and a certificate; "
            "set ssl.keystore.type=PEM and ssl.keystore.location, or ssl.keystore.key and "
            "ssl.keystore.certificate.chain"
        )
    try:
        load_identity(context, key, chain, password)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or "not PEM, or a wrong password"
        raise InvalidSettings(
            f"{name}: the key and certificate of listener {listener.name} cannot be used ({reason}); expected a "
            "private key and its certificate chain, and ssl.key.password where the key has a password"
        ) from None


def _own_from_store(settings: Settings, listener: BrokerListener, name: str, data: bytes) -> tuple[str, str]:
    password = _text(settings, listener, "ssl.keystore.password")
    try:
        store = read_store(name, data, password, _text(settings, listener, "ssl.key.password"))
    except StoreError as error:
        raise InvalidSettings(str(error)) from None
    if not store.key:
        raise InvalidSettings(f"{name} holds no private key; it may be a truststore")
    return store.key, store.chain


def _trust(context: ssl.SSLContext, settings: Settings, listener: BrokerListener) -> None:
    location = _text(settings, listener, "ssl.truststore.location")
    certificates = _text(settings, listener, "ssl.truststore.certificates")
    name = f"ssl.truststore.location={location}" if location else "ssl.truststore.certificates"
    if location:
        data = _read(name, location)
        certificates = data.decode(errors="replace") if is_pem(data) else ""
        if not certificates:
            try:
                password = _text(settings, listener, "ssl.truststore.password")
                certificates = read_store(name, data, password, "").certificates
            except StoreError as error:
                raise InvalidSettings(str(error)) from None
    if not certificates:
        raise InvalidSettings(
            f"ssl.truststore.location is missing: listener {listener.name} asks for clients' certificates and "
            "needs the authorities to trust"
        )
    try:
        context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError):
        raise InvalidSettings(f"{name} holds no certificates that can be read; expected PEM") from None


def _read(name: str, path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(FILE_BYTES_MAX)
    except OSError as error:
        raise InvalidSettings(f"{name} cannot be read: {error.strerror}") from None
