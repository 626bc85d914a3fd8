"""SCRAM by the book, brokers that lie about it, and TLS files that cannot be used. Real logins: tests/integration."""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from headrace.client.connection import BrokerConnection
from headrace.client.errors import ConfigError, IllegalSaslStateError, SaslAuthenticationError, TlsError
from headrace.client.security import ITERATIONS_MAX, Scram, ScramError, explain_tls, tls_context
from headrace.client.settings import Address, ClientSettings
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from headrace.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse
from headrace.wire.messages.sasl_handshake_response import SaslHandshakeResponse
from tests.unit.client.misbehaving import ScriptedBroker
from tests.unit.client.talk import run, settings_for

# RFC 7677, section 3: an exchange in full.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    b",p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram() -> Scram:
    return Scram("sha256", "user", "pencil", nonce=NONCE)


def tls(**keywords: Any) -> ssl.SSLContext:
    settings = ClientSettings.parse(bootstrap_servers="a:1", security_protocol="SSL", **keywords)
    context = tls_context(settings)
    assert context is not None
    return context


def test_scram_says_what_the_rfcs_example_says() -> None:
    exchange = scram()
    assert exchange.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert exchange.final(SERVER_FIRST) == CLIENT_FINAL
    exchange.verify(SERVER_FINAL)


def test_signs_that_scram_uses_itself_are_escaped_in_a_name() -> None:
    assert Scram("sha256", "a=b,c", "x", nonce="n").first() == b"n,,n=a=3Db=2Cc,r=n"


def test_no_two_exchanges_have_the_same_nonce() -> None:
    assert Scram("sha256", "user", "pencil").first() != Scram("sha256", "user", "pencil").first()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "cannot be read"),
        (b"r=" + NONCE.encode() + b"x,s=!!,i=4096", "cannot be read"),
        (b"r=" + NONCE.encode() + b"x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=many", "cannot be read"),
        (b"r=another,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "another SCRAM exchange"),
        (b"r=" + NONCE.encode() + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "another SCRAM exchange"),
        (SERVER_FIRST.replace(b"4096", b"4095"), "4095 SCRAM iterations; allowed are 4096 to"),
        (SERVER_FIRST.replace(b"4096", str(ITERATIONS_MAX + 1).encode()), "allowed are 4096 to 1000000"),
    ],
)
def test_a_first_answer_that_cannot_be_trusted_is_refused(answer: bytes, words: str) -> None:
    with pytest.raises(ScramError, match=words):
        scram().final(answer)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (SERVER_FINAL.replace(b"6rri", b"7rri"), "did not prove"),
        (b"v=", "did not prove"),
        (b"v=*", "did not prove"),
        (b"", "did not prove"),
        (b"e=other-error", "refused the login: other-error"),
    ],
)
def test_a_broker_that_does_not_know_the_password_is_refused(answer: bytes, words: str) -> None:
    exchange = scram()
    exchange.final(SERVER_FIRST)
    with pytest.raises(ScramError, match=words):
        exchange.verify(answer)


async def log_in(
    handshake: SaslHandshakeResponse,
    answer: Callable[[SaslAuthenticateRequest, int], SaslAuthenticateResponse],
) -> None:
    script = {"sasl_handshake": lambda *_: handshake, "sasl_authenticate": answer}
    async with ScriptedBroker(script) as broker:
        settings = settings_for(
            broker.address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_username="alice",
            sasl_password="secret",
        )
        connection = await BrokerConnection.open(Address("127.0.0.1", broker.port), settings)
        await connection.close()


def test_a_false_broker_that_takes_any_password_is_refused() -> None:
    def pretend(request: SaslAuthenticateRequest, _: int) -> SaslAuthenticateResponse:
        said = request.auth_bytes.decode()
        if said.startswith("n,,"):
            nonce = said.partition("r=")[2]
            return SaslAuthenticateResponse(auth_bytes=f"r={nonce}MORE,s=c2FsdA==,i=4096".encode())
        return SaslAuthenticateResponse(auth_bytes=b"v=c2lnbmF0dXJl")

    with pytest.raises(SaslAuthenticationError, match=r"did not prove that it has the password"):
        run(log_in(SaslHandshakeResponse(), pretend))


def test_a_listener_without_sasl_is_told_apart() -> None:
    refusal = SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    with pytest.raises(IllegalSaslStateError, match=r"set security\.protocol to PLAINTEXT or SSL"):
        run(log_in(refusal, lambda *_: SaslAuthenticateResponse()))


def test_there_is_no_context_without_tls() -> None:
    assert tls_context(ClientSettings.parse(bootstrap_servers="a:1")) is None


def test_names_and_certificates_are_checked_unless_told_otherwise() -> None:
    context = tls()
    assert (context.check_hostname, context.verify_mode) == (True, ssl.CERT_REQUIRED)
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
    unnamed = tls(ssl_endpoint_identification_algorithm="")
    assert (unnamed.check_hostname, unnamed.verify_mode) == (False, ssl.CERT_REQUIRED)
    unchecked = tls(enable_ssl_certificate_verification=False)
    assert (unchecked.check_hostname, unchecked.verify_mode) == (False, ssl.CERT_NONE)


def test_only_the_authorities_of_the_truststore_are_trusted(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(file)
    assert len(tls(ssl_truststore_location=str(file)).get_ca_certs()) == 1


def test_key_and_certificate_come_from_one_file_two_files_or_text(tmp_path: Path) -> None:
    certificate = trustme.CA().issue_cert("client@headrace.example")
    key, chain = certificate.private_key_pem.bytes(), certificate.cert_chain_pems[0].bytes()
    (tmp_path / "both.pem").write_bytes(key + chain)
    (tmp_path / "key.pem").write_bytes(key)
    (tmp_path / "chain.pem").write_bytes(chain)
    assert tls(ssl_keystore_location=str(tmp_path / "both.pem"))
    assert tls(
        ssl_key_location=str(tmp_path / "key.pem"), ssl_certificate_location=str(tmp_path / "chain.pem")
    )
    assert tls(ssl_keystore_key=key.decode(), ssl_keystore_certificate_chain=chain.decode())


def test_a_store_where_only_pem_is_read_is_sent_to_the_setting_for_it(tmp_path: Path) -> None:
    store = tmp_path / "store.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed")
    with pytest.raises(
        ConfigError, match=r"ssl\.key\.location='.*' is not a PEM file.*ssl\.keystore\.password"
    ):
        tls(ssl_key_location=str(store))


@pytest.mark.parametrize("name", ["ssl.truststore.location", "ssl.certificate.location"])
def test_a_file_that_is_not_there_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name}='.*gone\.pem' cannot be read: No such file"):
        tls(**{name.replace(".", "_"): str(tmp_path / "gone.pem")})


def test_a_truststore_with_damaged_certificates_is_named(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("-----BEGIN CERTIFICATE-----\nbm9uc2Vuc2U=\n-----END CERTIFICATE-----\n")
    with pytest.raises(ConfigError, match=r"ca\.pem' holds no certificates that can be read"):
        tls(ssl_truststore_location=str(file))


def test_a_key_without_its_certificate_is_named() -> None:
    key = trustme.CA().issue_cert("client@headrace.example").private_key_pem.bytes().decode()
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.key: .*the private key and its certificate chain"):
        tls(ssl_keystore_key=key)


def test_no_key_is_left_behind_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    certificate = trustme.CA().issue_cert("client@headrace.example")
    key, chain = certificate.private_key_pem.bytes().decode(), certificate.cert_chain_pems[0].bytes().decode()
    assert tls(ssl_keystore_key=key, ssl_keystore_certificate_chain=chain)
    with pytest.raises(ConfigError):
        tls(ssl_keystore_key=key, ssl_keystore_certificate_chain="nonsense")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("reason", "cure"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "Set ssl.keystore.location"),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", "see its ssl.cipher.suites"),
        ("TLSV1_ALERT_PROTOCOL_VERSION", "ssl.enabled.protocols of the broker"),
        ("TLSV1_ALERT_UNKNOWN_CA", "in the broker's truststore"),
        ("WRONG_VERSION_NUMBER", "set security.protocol to PLAINTEXT"),
    ],
)
def test_a_failure_of_tls_names_its_cure(reason: str, cure: str) -> None:
    error = ssl.SSLError(1, reason)
    explained = explain_tls(error, about="broker at a:1")
    assert isinstance(explained, TlsError)
    assert reason in str(explained)
    assert cure in str(explained)


def test_an_expired_certificate_points_to_the_clock() -> None:
    error = ssl.SSLCertVerificationError(1, "certificate has expired")
    error.verify_code, error.verify_message = 10, "certificate has expired"
    assert "Renew the broker's certificate" in str(explain_tls(error, about="broker at a:1"))
