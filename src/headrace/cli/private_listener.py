"""How the dashboard of `headrace serve --http` reaches a broker that knows its users: a listener of its own.

It is on the loopback address, and only a user that is made up at each start, with a random name and password, can log
in there. That user is a super user: what the visitors of the dashboard may do is decided by the dashboard.
"""

import secrets
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.broker.embedded import Broker

NAME = "HEADRACE_DASHBOARD"


@dataclass(frozen=True, slots=True)
class PrivateListener:
    user: str
    password: str = field(repr=False)

    def client_settings(self, broker: "Broker") -> dict[str, str]:
        return {
            "bootstrap.servers": broker.address_of(NAME),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": self.user,
            "sasl.password": self.password,
        }


def knows_users(settings: Mapping[str, str]) -> bool:
    """Whether a client without credentials could not look after this broker."""
    protocols = (
        f"{settings.get('listeners', '')} {settings.get('listener.security.protocol.map', '')}".upper()
    )
    return bool(settings.get("authorizer.class.name")) or "SASL" in protocols or "SSL" in protocols


def add_private_listener(settings: MutableMapping[str, str]) -> PrivateListener | None:
    """Adds it to the broker's settings where it is needed."""
    if not knows_users(settings):
        return None
    own = PrivateListener(f"headrace-dashboard-{secrets.token_hex(8)}", secrets.token_urlsafe(32))
    _append(settings, "listeners", f"{NAME}://127.0.0.1:0")
    map_of_protocols = "listener.security.protocol.map"
    known = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
    settings.setdefault(map_of_protocols, known)
    _append(settings, map_of_protocols, f"{NAME}:SASL_PLAINTEXT")
    _append(settings, "super.users", f"User:{own.user}", separator=";")
    prefix = f"listener.name.{NAME.lower()}."
    settings[prefix + "sasl.enabled.mechanisms"] = "PLAIN"
    settings[prefix + "plain.sasl.jaas.config"] = (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{own.user}="{own.password}";'
    )
    return own


def _append(settings: MutableMapping[str, str], name: str, value: str, *, separator: str = ",") -> None:
    before = settings.get(name, "")
    settings[name] = f"{before}{separator}{value}" if before else value
