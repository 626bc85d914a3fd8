"""The users that log in with SCRAM, kept in the metadata store; and `--add-scram`, which adds the first of them."""

import hmac
import logging
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from headrace.broker.security.scram import (
    HASHES,
    ITERATIONS,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramCredential,
    credential_of_password,
    parse_credential,
)
from headrace.wire.security import SaslMechanism, salt_of

logger = logging.getLogger("headrace.broker")

KIND = "scram"
"""The kind of resource in the metadata store's table of configs: one resource for each user."""
_ADDED = re.compile(r"(SCRAM-SHA-(?:256|512))=\[(.*)\]", re.DOTALL)


class CredentialStore(Protocol):
    login_secret: bytes

    def configs(self, kind: str) -> dict[str, dict[str, str]]: ...

    def set_configs(self, kind: str, name: str, configs: Mapping[str, str]) -> None: ...


class NewScramUser(NamedTuple):
    """What `--add-scram` asks for."""

    mechanism: SaslMechanism
    name: str
    password: str
    iterations: int = ITERATIONS

    def __repr__(self) -> str:
        return f"NewScramUser({self.mechanism.value}, {self.name!r})"


class Users:
    def __init__(self, store: CredentialStore) -> None:
        self._store = store
        self._secret = store.login_secret
        self._credentials: dict[str, dict[SaslMechanism, ScramCredential]] = {}
        self._iterations: dict[SaslMechanism, list[int]] = {}
        """Those of all users, until one changes: a login of an unknown user takes as long as one of a user."""
        self.on_changed: list[Callable[[str], None]] = []
        """Called with the name of a user whose credentials were altered."""
        for name, texts in store.configs(KIND).items():
            self._credentials[name] = {
                SaslMechanism(mechanism): parse_credential(text) for mechanism, text in texts.items()
            }

    def names(self) -> list[str]:
        return sorted(self._credentials)

    def credentials(self, name: str) -> Mapping[SaslMechanism, ScramCredential]:
        """Of one user, by mechanism; empty where there is no such user."""
        return self._credentials.get(name, {})

    def set(self, name: str, mechanism: SaslMechanism, credential: ScramCredential | None) -> None:
        """None removes it. Kept when this returns."""
        changed = {**self._credentials.get(name, {})}
        if credential is None:
            changed.pop(mechanism, None)
        else:
            changed[mechanism] = credential
        self._store.set_configs(KIND, name, {each.value: one.text() for each, one in changed.items()})
        if changed:
            self._credentials[name] = changed
        else:
            self._credentials.pop(name, None)
        self._iterations.clear()
        for told in self.on_changed:
            told(name)

    def decoy(self, name: str, mechanism: SaslMechanism) -> ScramCredential:
        """For a user that does not exist, never right.

        Its salt is the same each time, after a restart, too, and its iterations are those of some user, so that a
        client cannot tell.
        """
        chance = hmac.digest(self._secret, f"{mechanism.value} {name}".encode(), "sha512")
        known = self._known_iterations(mechanism)
        which = int.from_bytes(chance[:8])
        size = 32 if HASHES[mechanism] == "sha256" else 64
        return ScramCredential(
            salt_of(int.from_bytes(chance[8:])),
            secrets.token_bytes(size),
            secrets.token_bytes(size),
            known[which % len(known)] if known else ITERATIONS,
        )

    def _known_iterations(self, mechanism: SaslMechanism) -> list[int]:
        if mechanism not in self._iterations:
            self._iterations[mechanism] = sorted(
                each[mechanism].iterations for each in self._credentials.values() if mechanism in each
            )
        return self._iterations[mechanism]

    def add_missing(self, added: Iterable[NewScramUser]) -> None:
        """At a start: those that are not there yet. A password that was altered since the first start stays."""
        for user in added:
            if user.mechanism not in self.credentials(user.name):
                credential = credential_of_password(user.mechanism, user.password, iterations=user.iterations)
                self.set(user.name, user.mechanism, credential)
                logger.info("added user %r with %s", user.name, user.mechanism.value)


def both_mechanisms(passwords: Mapping[str, str]) -> list[NewScramUser]:
    return [
        NewScramUser(mechanism, name, password)
        for name, password in passwords.items()
        for mechanism in HASHES
    ]


def parse_new_user(text: str) -> NewScramUser:
    """`SCRAM-SHA-512=[name=admin,password=secret]`, as kafka-storage's option; ValueError does not show it."""
    expected = "expected SCRAM-SHA-512=[name=USER,password=PASSWORD] (or SCRAM-SHA-256, or with iterations=N)"
    found = _ADDED.fullmatch(text.strip())
    fields = (
        dict(re.findall(r"(name|password|iterations)=(\"[^\"]*\"|[^,]*)(?:,|$)", found[2])) if found else {}
    )
    if found is None or not fields.get("name") or not fields.get("password"):
        raise ValueError(f"--add-scram cannot be read; {expected}")
    iterations = fields.get("iterations", str(ITERATIONS))
    if not iterations.isdigit() or not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
        raise ValueError(
            f"--add-scram: iterations={iterations} must be between {ITERATIONS_MIN} and {ITERATIONS_MAX}"
        )
    name, password = (fields[each].strip('"') for each in ("name", "password"))
    return NewScramUser(SaslMechanism(found[1]), name, password, int(iterations))
