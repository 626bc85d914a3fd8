"""SCRAM credentials (RFC 5802): what the broker keeps of a password, and how it is made and written down.

The password itself is never kept. `stored_key` proves that a client knows it, `server_key` proves to the client that
the broker does. The text form is Kafka's own: `salt=...,stored_key=...,server_key=...,iterations=...`.
"""

import base64
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field

from headrace.wire.security import SALT_BITS, SaslMechanism, salt_of

ITERATIONS_MIN, ITERATIONS_MAX = 4096, 16_384
"""Kafka's bounds."""
ITERATIONS = 4096
HASHES = {SaslMechanism.SCRAM_SHA_256: "sha256", SaslMechanism.SCRAM_SHA_512: "sha512"}
MECHANISM_NUMBERS = {SaslMechanism.SCRAM_SHA_256: 1, SaslMechanism.SCRAM_SHA_512: 2}
"""As requests name them."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    def text(self) -> str:
        def encoded(data: bytes) -> str:
            return base64.b64encode(data).decode()

        return (
            f"salt={encoded(self.salt)},stored_key={encoded(self.stored_key)},"
            f"server_key={encoded(self.server_key)},iterations={self.iterations}"
        )


def parse_credential(text: str) -> ScramCredential:
    values = dict(pair.split("=", 1) for pair in text.split(","))
    salt, stored_key, server_key = (
        base64.b64decode(values[name], validate=True) for name in ("salt", "stored_key", "server_key")
    )
    return ScramCredential(salt, stored_key, server_key, int(values["iterations"]))


def credential_of_password(
    mechanism: SaslMechanism, password: str, *, iterations: int = ITERATIONS, salt: bytes = b""
) -> ScramCredential:
    salt = salt or salt_of(secrets.randbits(SALT_BITS))
    salted = hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)
    return credential_of_salted(mechanism, salted, salt, iterations)


def has_password(mechanism: SaslMechanism, credential: ScramCredential, password: str) -> bool:
    """Whether a credential was made of this password. Takes as long as a log-in."""
    try:
        made = credential_of_password(
            mechanism, password, iterations=credential.iterations, salt=credential.salt
        )
    except ValueError:  # a password with characters that none can have
        return False
    return hmac.compare_digest(made.stored_key, credential.stored_key)


def credential_of_salted(
    mechanism: SaslMechanism, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """Clients that alter a credential send the password salted already."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return ScramCredential(
        salt=salt,
        stored_key=hashlib.new(name, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", name),
        iterations=iterations,
    )
