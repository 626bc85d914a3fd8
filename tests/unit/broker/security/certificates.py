"""Certificates for the tests: an authority, and key stores of brokers and clients as PEM files."""

import datetime
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12


class TestAuthority:
    """`ca` is the file that others trust."""

    __test__ = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self._authority.cert_pem.write_to_path(self.ca)

    def keystore(self, *names: str, password: bytes | None = None, file: str = "broker.pem") -> Path:
        """Key (PKCS#8, as Kafka wants it) and chain in one file."""
        certificate = self._authority.issue_cert(*names or ("localhost", "127.0.0.1"))
        key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
        hidden = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        data = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden)
        path = self._folder / file
        path.write_bytes(data + b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
        return path

    def pkcs12(self, password: bytes) -> Path:
        pem = self.keystore(file="temporary.pem").read_bytes()
        key = serialization.load_pem_private_key(pem, None)
        [own, *others] = x509.load_pem_x509_certificates(pem)
        path = self._folder / "broker.p12"
        hidden = serialization.BestAvailableEncryption(password)
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"broker", key, own, others, hidden))  # type: ignore[arg-type]
        return path


def pkcs12_truststore(ca: Path, password: bytes) -> Path:
    path = ca.with_suffix(".p12")
    hidden = serialization.BestAvailableEncryption(password)
    trusted = x509.load_pem_x509_certificates(ca.read_bytes())
    path.write_bytes(pkcs12.serialize_key_and_certificates(None, None, None, trusted, hidden))
    return path


def self_signed(name: x509.Name, folder: Path) -> tuple[Path, bytes]:
    """A certificate with any name: the file with key and certificate, and its DER."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "self.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    return path, certificate.public_bytes(serialization.Encoding.DER)
