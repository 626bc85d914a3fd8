"""PKCS12 and JKS stores: read by their content, with the right password and no other."""

import base64
import ssl
import sys
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from headrace.client.errors import ConfigError
from headrace.client.security import _read_store as read_store
from headrace.client.security import tls_context
from headrace.client.settings import ClientSettings

STORES = Path(__file__).with_name("stores")
"""By keytool of OpenJDK 17; trust.* hold the certificate of client.jks. See its README."""


def tls(**keywords: str) -> ssl.SSLContext:
    context = tls_context(
        ClientSettings.parse(bootstrap_servers="localhost:9092", security_protocol="SSL", **keywords)
    )
    assert context is not None
    return context


def subjects(pem: str) -> list[str]:
    found = x509.load_pem_x509_certificates(pem.encode())
    return [each.subject.rfc4514_string() for each in found]


@pytest.mark.parametrize("name", ["trust.jks", "trust.p12"])
def test_a_truststore_of_keytool_is_read(name: str) -> None:
    store = read_store(name, (STORES / name).read_bytes(), "changeit", "")
    assert (subjects(store.certificates), store.key) == (["CN=client"], "")
    context = tls(ssl_truststore_location=str(STORES / name), ssl_truststore_password="changeit")
    assert context.cert_store_stats()["x509"] == 1


@pytest.mark.parametrize(("name", "key_password"), [("client.jks", "opensesame"), ("client.p12", "")])
def test_a_keystore_of_keytool_is_read(name: str, key_password: str) -> None:
    store = read_store(name, (STORES / name).read_bytes(), "changeit", key_password)
    key = serialization.load_pem_private_key(store.key.encode(), None)
    (certificate,) = x509.load_pem_x509_certificates(store.chain.encode())
    assert certificate.public_key() == key.public_key()
    assert tls(
        ssl_keystore_location=str(STORES / name),
        ssl_keystore_password="changeit",
        ssl_key_password=key_password,
        ssl_keystore_type="PEM",  # the content says what it is
    )


@pytest.mark.parametrize("name", ["client.jks", "client.p12"])
def test_a_wrong_password_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.password"):
        tls(ssl_keystore_location=str(STORES / name), ssl_keystore_password="wrong")


def test_a_wrong_password_of_a_key_is_named() -> None:
    with pytest.raises(ConfigError, match=r"another password; set ssl\.key\.password"):
        tls(ssl_keystore_location=str(STORES / "client.jks"), ssl_keystore_password="changeit")


def test_a_truststore_is_no_keystore() -> None:
    with pytest.raises(ConfigError, match="holds no private key"):
        tls(ssl_keystore_location=str(STORES / "trust.jks"), ssl_keystore_password="changeit")


@pytest.mark.parametrize("size", [8, 40, 200])
def test_a_damaged_jks_store_is_named(size: int) -> None:
    data = (STORES / "client.jks").read_bytes()[:size]
    with pytest.raises(ConfigError, match="JKS store that"):
        read_store("store", data, "", "")


def test_a_chain_of_several_certificates_is_kept(tmp_path: Path) -> None:
    authority = trustme.CA().create_child_ca()
    leaf = authority.issue_cert("client@headrace.example")
    chain = x509.load_pem_x509_certificates(b"".join(each.bytes() for each in leaf.cert_chain_pems))
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None)
    hidden = serialization.BestAvailableEncryption(b"pw")
    file = tmp_path / "store"
    file.write_bytes(pkcs12.serialize_key_and_certificates(b"me", key, chain[0], chain[1:], hidden))  # type: ignore[arg-type]
    store = read_store("store", file.read_bytes(), "pw", "")
    assert x509.load_pem_x509_certificates(store.chain.encode()) == chain
    assert tls(ssl_keystore_location=str(file), ssl_keystore_password="pw")


def test_what_is_no_store_is_named() -> None:
    with pytest.raises(ConfigError, match="is not a PEM file, a PKCS12 store or a JKS store"):
        read_store("store", base64.b64decode("AAAA"), "", "")


def test_pkcs12_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(ConfigError, match="pip install cryptography"):
        read_store("store", (STORES / "trust.p12").read_bytes(), "changeit", "")
