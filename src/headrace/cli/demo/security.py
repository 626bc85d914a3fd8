"""`headrace demo --secure`: a certificate, two users and their rights for the demo's own broker.

`admin` is a super user and creates topics, groups and ACLs. Everything else logs in as `shop`, which may read and write
the topics and read with the groups of the stories, and nothing else.
"""

import os
import secrets
import shutil
import subprocess
from pathlib import Path

from headrace.cli.failures import Refused
from headrace.wire.acls import Acl, AclOperation, AclPatternType, AclPermission, AclResourceType

ADMIN, SHOP = "admin", "shop"
MECHANISM = "SCRAM-SHA-512"
_RIGHTS = {
    AclResourceType.TOPIC: (AclOperation.READ, AclOperation.WRITE),
    AclResourceType.GROUP: (AclOperation.READ,),
}


class DemoSecurity:
    def __init__(self, folder: Path) -> None:
        self._config = folder / "server.properties"
        self._keystore, self._certificate = folder / "broker.pem", folder / "ca.pem"
        self._passwords = {name: secrets.token_urlsafe(18) for name in (ADMIN, SHOP)}
        self.token = secrets.token_urlsafe(16)
        """Opens the dashboard."""
        _make_certificate(self._keystore, self._certificate)

    def configure(self, address: str) -> Path:
        """The broker's settings, for `headrace serve --config`."""
        self._config.write_text(
            f"listeners=SASL_SSL://{address}\n"
            f"sasl.enabled.mechanisms={MECHANISM}\n"
            "ssl.keystore.type=PEM\n"
            f"ssl.keystore.location={self._keystore}\n"
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
            f"super.users=User:{ADMIN}\n"
        )
        return self._config

    def environment(self) -> dict[str, str]:
        """Not as arguments: everybody on the machine can read those."""
        users = [f"{MECHANISM}=[name={name},password={word}]" for name, word in self._passwords.items()]
        return {"HEADRACE_ADD_SCRAM": "\n".join(users), "HEADRACE_WEB_TOKEN": self.token}

    def login(self, user: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._certificate),
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": self._passwords[user],
        }


def rights(kind: AclResourceType, name: str) -> list[Acl]:
    """What the shop may do with a topic or a group of a story."""
    literal, allowed = AclPatternType.LITERAL, AclPermission.ALLOW
    return [Acl(kind, name, literal, f"User:{SHOP}", "*", each, allowed) for each in _RIGHTS[kind]]


def _make_certificate(keystore: Path, certificate: Path) -> None:
    if shutil.which("openssl") is None:
        raise Refused("--secure needs the openssl command, to make a certificate; install OpenSSL")
    key = keystore.with_suffix(".key")
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
    command = ["openssl", "req", "-x509", *kind, "-keyout", str(key), "-out", str(certificate), *subject]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise Refused(f"openssl could not make a certificate:\n{made.stderr.strip()}")
    with open(os.open(keystore, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(key.read_bytes() + certificate.read_bytes())
    key.unlink()
