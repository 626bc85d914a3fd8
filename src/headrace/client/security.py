"""How a connection is secured: the TLS context from files or text, and logging in by SASL PLAIN, SCRAM, OAUTHBEARER.

Theory of operation. TLS trusts the system's authorities unless the settings name others, and holds the certificate
to the host name unless told not to. SASL is a handshake that names the mechanism, then one exchange (PLAIN; and
OAUTHBEARER, RFC 7628, with a token that `tokens.py` gets) or two (SCRAM, RFC 5802). SCRAM never sends the password, and
its last answer proves that the broker knows it too; a broker that cannot prove it is refused. Each failure says which
setting to look at.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

from headrace.base.stores import JavaStore, StoreError, is_pem, read_store
from headrace.client.errors import AuthenticationError, ConfigError, TlsError, error_for
from headrace.client.settings import ClientSettings
from headrace.client.tokens import fetch_token
from headrace.wire.errors import ErrorCode
from headrace.wire.message import Message
from headrace.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from headrace.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse
from headrace.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from headrace.wire.messages.sasl_handshake_response import SaslHandshakeResponse
from headrace.wire.security import SaslMechanism
from headrace.wire.tls import AlertingContext, default_client_context, load_identity

Ask = Callable[[Message], Awaitable[Message]]
Exchange = Callable[[bytes], Awaitable[SaslAuthenticateResponse]]
ITERATIONS_MIN, ITERATIONS_MAX = 4_096, 1_000_000
"""What a broker may ask of SCRAM: fewer give the password away, more would keep this process from working."""
_HASHES = {SaslMechanism.SCRAM_SHA_256: "sha256", SaslMechanism.SCRAM_SHA_512: "sha512"}
_HOSTNAME_MISMATCH, _ADDRESS_MISMATCH, _EXPIRED, _NOT_YET_VALID = 62, 64, 10, 9


def tls_context(settings: ClientSettings) -> ssl.SSLContext | None:
    """The context for these settings, or None where security.protocol has no TLS. ConfigError for a bad file."""
    if not settings.security_protocol.has_tls:
        return None
    if settings.ssl_truststore_location or settings.ssl_truststore_certificates:
        context = AlertingContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _trust(context, settings)
    else:
        context = default_client_context()
    context.check_hostname = settings.ssl_endpoint_identification_algorithm == "https"
    if not settings.enable_ssl_certificate_verification:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _load_own_certificate(context, settings)
    return context


def _trust(context: ssl.SSLContext, settings: ClientSettings) -> None:
    certificates = settings.ssl_truststore_certificates
    name = "ssl.truststore.certificates"
    if settings.ssl_truststore_location:
        name = f"ssl.truststore.location={settings.ssl_truststore_location!r}"
        certificates += "\n" + _certificates(name, settings)
    try:
        context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{name} holds no certificates that can be read ({error}); expected PEM") from None


def _certificates(name: str, settings: ClientSettings) -> str:
    data = _read(name, settings.ssl_truststore_location)
    if is_pem(data):
        return data.decode(errors="replace")
    return _read_store(name, data, settings.ssl_truststore_password, "").certificates


def _load_own_certificate(context: ssl.SSLContext, settings: ClientSettings) -> None:
    chain, key = settings.ssl_keystore_certificate_chain, settings.ssl_keystore_key
    names = []
    if settings.ssl_keystore_location:
        names = [f"ssl.keystore.location={settings.ssl_keystore_location!r}"]
        data = _read(names[0], settings.ssl_keystore_location)
        if is_pem(data):
            chain = data.decode(errors="replace")
        else:
            key, chain, _ = _read_store(
                names[0], data, settings.ssl_keystore_password, settings.ssl_key_password
            )
            if not key:
                raise ConfigError(f"{names[0]} holds no private key; it may be a truststore")
    if settings.ssl_certificate_location:
        names.append(f"ssl.certificate.location={settings.ssl_certificate_location!r}")
        chain = _read_pem(names[-1], settings.ssl_certificate_location)
    if settings.ssl_key_location:
        names.append(f"ssl.key.location={settings.ssl_key_location!r}")
        key = _read_pem(names[-1], settings.ssl_key_location)
    if not chain and not key:
        return
    named = ", ".join(names) or "ssl.keystore.certificate.chain, ssl.keystore.key"
    try:
        load_identity(context, key, chain, settings.ssl_key_password)
    except ssl.SSLError as error:
        raise ConfigError(
            f"{named}: this client's certificate and key cannot be used ({error.reason or error}); expected PEM with "
            "the private key and its certificate chain, and ssl.key.password where the key has a password"
        ) from None


def _read_store(name: str, data: bytes, password: str, key_password: str) -> JavaStore:
    try:
        return read_store(name, data, password, key_password)
    except StoreError as error:
        raise ConfigError(str(error)) from None


def _read_pem(name: str, path: str) -> str:
    data = _read(name, path)
    if not is_pem(data):
        raise ConfigError(
            f"{name} is not a PEM file; a JKS or PKCS12 store goes into ssl.keystore.location, with "
            "ssl.keystore.password"
        )
    return data.decode(errors="replace")


def _read(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}") from None


def explain_tls(error: Exception, *, about: str) -> TlsError:
    """A failure of TLS in words, with the setting that cures it."""
    reason = getattr(error, "reason", None) or str(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return _tls_error(
            f"its certificate is not accepted: {error.verify_message}", _certificate_cure(error), about
        )
    if "HANDSHAKE_FAILURE" in reason:  # up to TLS 1.2 it means either
        return _tls_error(
            f"the broker refuses the handshake ({reason})",
            "If it asks for certificates, set ssl.keystore.location to a PEM file with a key and a certificate that it "
            "trusts. If not, it has no cipher suite in common with this client: see its ssl.cipher.suites.",
            about,
        )
    if "PROTOCOL_VERSION" in reason:
        return _tls_error(
            f"the broker speaks no version of TLS that this client speaks ({reason})",
            "Add TLSv1.2 or TLSv1.3 to ssl.enabled.protocols of the broker.",
            about,
        )
    if "CERTIFICATE_REQUIRED" in reason or "BAD_CERTIFICATE" in reason:
        return _tls_error(
            f"the broker does not accept this client's certificate ({reason})",
            "Set ssl.keystore.location to a PEM file with a key and a certificate that the broker trusts.",
            about,
        )
    if "UNKNOWN_CA" in reason or "CERTIFICATE_UNKNOWN" in reason:
        return _tls_error(
            f"the broker does not trust the authority of this client's certificate ({reason})",
            "Use a certificate of an authority that is in the broker's truststore.",
            about,
        )
    return _tls_error(
        f"no TLS could be agreed on ({reason})",
        "If the listener does not speak TLS, set security.protocol to PLAINTEXT or SASL_PLAINTEXT, or use the port "
        "of its TLS listener.",
        about,
    )


def _certificate_cure(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in (_HOSTNAME_MISMATCH, _ADDRESS_MISMATCH):
        return (
            "Reach the broker by a name that its certificate has (bootstrap.servers, advertised.listeners), or set "
            "ssl.endpoint.identification.algorithm=none to leave the name unchecked."
        )
    if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
        return "Renew the broker's certificate, or correct this machine's clock."
    return "Set ssl.truststore.location to a PEM file with the authority that signed it."


def _tls_error(text: str, cure: str, about: str) -> TlsError:
    return TlsError(ErrorCode.NETWORK_EXCEPTION, text, about, cure)


async def authenticate(ask: Ask, settings: ClientSettings, *, about: str) -> int:
    """Logs in on a connection. How long the broker lets the session live in ms, 0 for as long as it likes."""
    mechanism = settings.sasl_mechanism
    handshake = await ask(SaslHandshakeRequest(mechanism=mechanism.value))
    assert isinstance(handshake, SaslHandshakeResponse)
    if handshake.error_code:
        offered = ", ".join(handshake.mechanisms) or "none"
        text = f"the broker does not take sasl.mechanism={mechanism.value}; it offers {offered}"
        is_unsupported = handshake.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        raise error_for(handshake.error_code, text if is_unsupported else None, about=about)

    async def exchange(data: bytes) -> SaslAuthenticateResponse:
        answer = await ask(SaslAuthenticateRequest(auth_bytes=data))
        assert isinstance(answer, SaslAuthenticateResponse)
        if answer.error_code:
            who = f"user {settings.sasl_username!r}" if settings.sasl_username else "this client's token"
            text = f"{who}: {answer.error_message or 'refused'}"
            raise error_for(answer.error_code, text, about=about)
        return answer

    if mechanism is SaslMechanism.OAUTHBEARER:
        token = await fetch_token(settings, about=about)
        return await _bear(exchange, token, settings.sasl_oauthbearer_extensions, about)
    if mechanism is SaslMechanism.PLAIN:
        login = f"\0{settings.sasl_username}\0{settings.sasl_password}"
        return (await exchange(login.encode())).session_lifetime_ms
    scram = Scram(_HASHES[mechanism], settings.sasl_username, settings.sasl_password)
    try:
        first = await exchange(scram.first())
        last = await exchange(scram.final(first.auth_bytes))
        scram.verify(last.auth_bytes)
    except ScramError as error:
        raise _not_proven(str(error), about) from None
    return last.session_lifetime_ms


async def _bear(exchange: Exchange, token: str, extensions: str, about: str) -> int:
    """A broker that refuses the token says why in its answer, and ends the exchange when it is told to."""
    pairs = [each.strip() for each in extensions.split(",") if each.strip()]
    said = "\1".join([f"auth=Bearer {token}", *pairs])
    answer = await exchange(f"n,,\1{said}\1\1".encode())
    if answer.auth_bytes:
        why = answer.auth_bytes.decode(errors="replace")
        try:
            await exchange(b"\1")
        except AuthenticationError as error:
            raise _not_proven(f"the broker refused the token: {why}; {error.message}", about) from None
        raise _not_proven(f"the broker refused the token: {why}", about)
    return answer.session_lifetime_ms


def _not_proven(text: str, about: str) -> AuthenticationError:
    error = error_for(ErrorCode.SASL_AUTHENTICATION_FAILED, text, about=about)
    assert isinstance(error, AuthenticationError)
    return error


class ScramError(Exception):
    """What the broker said is no SCRAM, or does not prove that it knows the password."""


class Scram:
    """The client's side of SCRAM (RFC 5802), without channel binding, as Kafka speaks it."""

    def __init__(self, hash_name: str, username: str, password: str, *, nonce: str | None = None) -> None:
        self._hash = hash_name
        self._password = password.encode()
        self._nonce = nonce or secrets.token_urlsafe(24)
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={self._nonce}"
        self._server_signature = b""

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        fields = _fields(server_first)
        try:
            nonce, salt, iterations = (
                fields["r"],
                base64.b64decode(fields["s"], validate=True),
                int(fields["i"]),
            )
        except (KeyError, ValueError, binascii.Error):
            raise ScramError("the broker's first SCRAM message cannot be read") from None
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the broker's response belongs to another SCRAM exchange")
        if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
            raise ScramError(
                f"the broker asks for {iterations} SCRAM iterations; allowed are {ITERATIONS_MIN} to {ITERATIONS_MAX}"
            )
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = self._mac(salted, b"Client Key")
        without_proof = f"c=biws,r={nonce}"
        signed = b",".join([self._first_bare.encode(), server_first, without_proof.encode()])
        signature = self._mac(hashlib.new(self._hash, client_key).digest(), signed)
        proof = bytes(mine ^ other for mine, other in zip(client_key, signature, strict=True))
        self._server_signature = self._mac(self._mac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        fields = _fields(server_final)
        if "e" in fields:
            raise ScramError(f"the broker refused the login: {fields['e']}")
        try:
            signature = base64.b64decode(fields.get("v", ""), validate=True)
        except (ValueError, binascii.Error):
            signature = b""
        if not hmac.compare_digest(signature, self._server_signature):
            raise ScramError("the broker did not prove that it has the password; it may be an impostor")

    def _mac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)


def _fields(message: bytes) -> dict[str, str]:
    parts = message.decode(errors="replace").split(",")
    return {part[0]: part[2:] for part in parts if part[1:2] == "="}
