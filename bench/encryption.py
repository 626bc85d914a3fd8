"""A listener with TLS for both brokers: an authority made for the run, and one cipher suite that both must use."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from bench.tasks import CLIENT_TIMEOUT_S, COMPILED, ROOT

SUITE = "TLS_AES_256_GCM_SHA384"
OTHERS = ("TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")


class WrongSuite(Exception):
    """A broker encrypts with something else than SUITE, so the brokers cannot be compared."""


@dataclass(frozen=True, slots=True)
class Encryption:
    """Files of the run. `openssl` limits OpenSSL to SUITE, for our broker."""

    keystore: Path
    ca: Path
    openssl: Path

    @property
    def settings(self) -> dict[str, str]:
        """Of either broker. Ours cannot limit the suites of TLS 1.3 by its settings; `environment` does that."""
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
            "ssl.enabled.protocols": "TLSv1.3",
            "ssl.cipher.suites": SUITE,
        }

    @property
    def environment(self) -> dict[str, str]:
        """Of our broker."""
        return {"OPENSSL_CONF": str(self.openssl)}


def make_encryption(folder: Path) -> Encryption:
    """A certificate of 127.0.0.1 (ECDSA, P-256), with its key as PKCS#8, the only kind that Kafka reads."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    key = load_pem_private_key(certificate.private_key_pem.bytes(), None)
    own = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    made = Encryption(folder / "broker.pem", folder / "ca.pem", folder / "openssl.cnf")
    made.keystore.write_bytes(own + b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    authority.cert_pem.write_to_path(made.ca)
    made.openssl.write_text(openssl_config([SUITE]))
    return made


def openssl_config(suites: Sequence[str]) -> str:
    """What a file in OPENSSL_CONF must say so that a program has only these suites of TLS 1.3, in this order."""
    return (
        "openssl_conf = begin\n"
        "[begin]\nssl_conf = tls\n"
        "[tls]\nsystem_default = suites\n"
        f"[suites]\nCiphersuites = {':'.join(suites)}\n"
    )


def require_suite(tls_servers: str, ca: Path) -> str:
    """The suite that a listener chooses, which is SUITE though a client likes others better; it accepts no other."""
    for offered, wanted in (((*OTHERS, SUITE), SUITE), (OTHERS, "")):
        chosen = _suite_of(tls_servers, ca, offered)
        if chosen != wanted:
            raise WrongSuite(
                f"{tls_servers} chose {chosen or 'no cipher suite'} of {', '.join(offered)};"
                f" it must choose {wanted or 'none'}"
            )
    return SUITE


def _suite_of(tls_servers: str, ca: Path, offered: Sequence[str]) -> str:
    """In a process of its own, which OPENSSL_CONF limits to what is offered."""
    config = ca.with_name("offered.cnf")
    config.write_text(openssl_config(offered))
    command = [sys.executable, "-m", "bench.clients.handshake"]
    answer = subprocess.run(
        [*command, "--bootstrap-server", tls_servers, "--ca", str(ca)],
        capture_output=True,
        text=True,
        timeout=CLIENT_TIMEOUT_S,
        cwd=ROOT,
        env={**os.environ, **COMPILED, "OPENSSL_CONF": str(config)},
    )
    if answer.returncode:
        raise WrongSuite(f"the handshake with {tls_servers} failed:\n{answer.stderr}")
    return answer.stdout.strip()
