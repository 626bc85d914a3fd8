"""Java's key and trust stores, PKCS12 and JKS, as PEM text.

What a file is shows in its first bytes, not in its name: keytool has written PKCS12 into files named .jks since Java 9.
PKCS12 is read by the package `cryptography`, which is imported only then. JKS is a list of entries behind a magic
number: certificates as they are, private keys under a cipher of Sun's own, and a SHA-1 over all of it and the password.
"""

import base64
import hashlib
import hmac
import struct
from typing import NamedTuple

_JKS = b"\xfe\xed\xfe\xed"
_PRIVATE_KEY, _CERTIFICATE = 1, 2
_ENTRIES_MAX = 100_000


class StoreError(ValueError):
    """A key store that cannot be read; the text names the setting that cures it."""


class JavaStore(NamedTuple):
    """As PEM text. `key` is "" where there is none; `chain` belongs to it."""

    key: str
    chain: str
    certificates: str


def is_pem(data: bytes) -> bool:
    return b"-----BEGIN " in data


def read_store(name: str, data: bytes, password: str, key_password: str) -> JavaStore:
    """`name` is how errors call it. Without a password of its own, a key has the store's."""
    if data.startswith(_JKS):
        return _read_jks(name, data, password, key_password or password)
    if data.startswith(b"\x30"):
        return _read_pkcs12(name, data, password)
    raise StoreError(
        f"{name} is not a PEM file, a PKCS12 store or a JKS store; it begins with {data[:8].hex()}"
    )


def _read_pkcs12(name: str, data: bytes, password: str) -> JavaStore:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        raise StoreError(
            f"{name} is a PKCS12 store, and reading it needs the package cryptography: `pip install cryptography`. "
            "Or convert it: `openssl pkcs12 -in STORE -out store.pem`"
        ) from None
    try:
        found = pkcs12.load_pkcs12(data, password.encode() or None)
    except ValueError as error:
        raise StoreError(
            f"{name} cannot be read as a PKCS12 store ({error}); set its password, "
            f"{name.partition('.location')[0]}.password"
        ) from None
    key = ""
    if found.key is not None:
        key = found.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode()
    own = [] if found.cert is None else [found.cert]
    every = [
        each.certificate.public_bytes(serialization.Encoding.PEM).decode()
        for each in [*own, *found.additional_certs]
    ]
    return JavaStore(key, "".join(every) if key else "", "".join(every))


def _read_jks(name: str, data: bytes, password: str, key_password: str) -> JavaStore:
    wanted = hashlib.sha1(_utf16(password) + b"Mighty Aphrodite" + data[:-20]).digest()
    if password and not hmac.compare_digest(wanted, data[-20:]):
        raise StoreError(
            f"{name} is a JKS store that is damaged, or its password differs from "
            f"{name.partition('.location')[0]}.password"
        )
    try:
        return _JksReader(data[:-20]).read(name, key_password)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise StoreError(f"{name} is a JKS store that cannot be read: {error}") from None


class _JksReader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 4
        self._version = self._number()

    def read(self, name: str, key_password: str) -> JavaStore:
        key, chain, certificates = "", "", ""
        count = self._number()
        if self._version not in (1, 2) or count > _ENTRIES_MAX:
            raise struct.error(f"version {self._version} with {count} entries")
        for _ in range(count):
            tag = self._number()
            self._text()  # its alias
            self._take(8)  # when it was made
            if tag == _PRIVATE_KEY:
                hidden = self._block()
                own = "".join(self._certificate() for _ in range(self._number()))
                certificates += own
                if not key:
                    key, chain = _pem("PRIVATE KEY", _reveal(name, hidden, key_password)), own
            elif tag == _CERTIFICATE:
                certificates += self._certificate()
            else:
                raise struct.error(f"unknown entry type {tag}")
        return JavaStore(key, chain, certificates)

    def _certificate(self) -> str:
        if self._version == 2:
            self._text()  # X.509
        return _pem("CERTIFICATE", self._block())

    def _take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            raise struct.error("unexpected end of file")
        self._at += size
        return taken

    def _number(self) -> int:
        number: int = struct.unpack(">I", self._take(4))[0]
        return number

    def _text(self) -> str:
        return self._take(struct.unpack(">H", self._take(2))[0]).decode()

    def _block(self) -> bytes:
        return self._take(self._number())


def _reveal(name: str, hidden: bytes, password: str) -> bytes:
    """Sun's cipher: the key with SHA-1 of password and what came before laid over it, and a SHA-1 to prove it."""
    protected = _octets(hidden)
    before, covered, check = protected[:20], protected[20:-20], protected[-20:]
    secret = _utf16(password)
    stream = b""
    while len(stream) < len(covered):
        before = hashlib.sha1(secret + before).digest()
        stream += before
    plain = bytes(one ^ other for one, other in zip(covered, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain).digest(), check):
        raise StoreError(
            f"{name}: the private key has another password; set ssl.key.password (without it, "
            "ssl.keystore.password is tried)"
        )
    return plain


def _octets(der: bytes) -> bytes:
    """Of EncryptedPrivateKeyInfo: a sequence of an algorithm and the octets."""
    inside, _ = _value(der)
    _, rest = _value(inside)
    octets, _ = _value(rest)
    return octets


def _value(der: bytes) -> tuple[bytes, bytes]:
    """The first DER value without its tag and length, and what comes behind it."""
    length, start = der[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[2:start], "big")
    return der[start : start + length], der[start + length :]


def _pem(kind: str, der: bytes) -> str:
    text = base64.encodebytes(der).decode()
    return f"-----BEGIN {kind}-----\n{text}-----END {kind}-----\n"


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")
