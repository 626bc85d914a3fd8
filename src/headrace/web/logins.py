"""Who is logged in to the dashboard: users with passwords that the cluster knows, roles, sessions that end.

A session is a random cookie. It ends when it was not used for `session_s`, when the user logs out, when the user is
deleted or gets another password, and when the dashboard stops. What an open page asks for by itself is no use: a screen
that nobody sits at logs out, too. Passwords are checked by the embedded broker (its SCRAM
credentials), which also knows when they change. Without it, they are checked by logging in to the cluster with them,
again every `CHECKED_S` while the session is used; for that, the session keeps the password in memory.
"""

import asyncio
import ipaddress
import math
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from enum import Enum

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.errors import AuthenticationError
from headrace.client.settings import ClientSettings
from headrace.web.options import WebOptions
from headrace.wire.errors import KafkaError
from headrace.wire.security import SaslMechanism

SESSIONS_MAX = 1_000
"""With more, the one that was not used for the longest time ends."""
FAILURES_MAX = 10
FAILURES_S = 60.0
"""So many wrong passwords from one address, or one IPv6 network, in that time; then it has to wait."""
ADDRESSES_MAX = 10_000
AT_ONCE_MAX = 4
"""Passwords that are checked at the same time."""
CHECKED_S = 60.0
"""A password that was checked by logging in to the cluster is checked again after this time."""
CHECK_S_MAX = 3.0
"""A cluster that does not answer in this time ends no session: the dashboard has to say that it is gone."""
CHECK_AGAIN_S = 10.0
"""When it is asked again."""
IsValid = Callable[[], Awaitable[bool]]
"""Whether a login would still succeed."""
Verify = Callable[[str, str], Awaitable[IsValid | None]]
"""Checks a name and a password; None if they are wrong."""


async def always() -> bool:
    return True


class Role(Enum):
    VIEWER = "viewer"
    OPERATOR = "operator"


@dataclass(slots=True)
class Visitor:
    """Who sends a request."""

    name: str
    role: Role
    expires_at: float = math.inf
    is_valid: IsValid = always
    now: Callable[[], float] = time.monotonic
    is_over: bool = False
    """Logged out, deleted or with another password, or not there for too long: what is being streamed to it ends."""

    async def check(self) -> bool:
        """Whether the session goes on."""
        if not self.is_over and (self.expires_at <= self.now() or not await self.is_valid()):
            self.is_over = True
        return not self.is_over


def role_of(name: str, options: WebOptions) -> Role | None:
    if not options.operators.isdisjoint({name, "*"}):
        return Role.OPERATOR
    return Role.VIEWER if not options.viewers.isdisjoint({name, "*"}) else None


class Sessions:
    def __init__(self, options: WebOptions, now: Callable[[], float] = time.monotonic) -> None:
        self._options = options
        self._now = now
        self._visitors: dict[str, Visitor] = {}
        """By the secret in their cookie, in the order of their last request."""

    def open(self, name: str, role: Role, is_valid: IsValid = always) -> str:
        """The secret for the cookie."""
        while len(self._visitors) >= SESSIONS_MAX:
            self.close(next(iter(self._visitors)))
        secret = secrets.token_urlsafe(32)
        expires_at = self._now() + self._options.session_s
        self._visitors[secret] = Visitor(name, role, expires_at, is_valid, self._now)
        return secret

    async def find(self, secret: str | None, *, is_use: bool = True) -> Visitor | None:
        """The session of this cookie. If that is a use of it, it ends later."""
        visitor = self._visitors.get(secret or "")
        if visitor is None or not await visitor.check():
            self.close(secret)
            return None
        if self._visitors.pop(secret or "", None) is not visitor:  # logged out while it was checked
            return None
        if is_use:
            visitor.expires_at = self._now() + self._options.session_s
        self._visitors[secret or ""] = visitor
        return visitor

    def close(self, secret: str | None) -> None:
        visitor = self._visitors.pop(secret or "", None)
        if visitor is not None:
            visitor.is_over = True


class Logins:
    """Checks names and passwords, not too many and not too often."""

    def __init__(
        self, options: WebOptions, verify: Verify, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._options = options
        self._verify = verify
        self._now = now
        self._failures: dict[str, tuple[float, int]] = {}
        """By source: when counting began, and how many there were since."""
        self._at_once = asyncio.Semaphore(AT_ONCE_MAX)

    def must_wait(self, address: str) -> bool:
        since, count = self._failures.get(source_of(address), (0.0, 0))
        return count >= FAILURES_MAX and self._now() < since + FAILURES_S

    async def check(self, name: str, password: str, address: str) -> tuple[Role, IsValid] | None:
        """The role of a user with that password; None where the password or the role is missing.

        Asked many times at once, it looks again whether the address has to wait when it is its turn.
        """
        async with self._at_once:
            may_try = bool(name and password) and not self.must_wait(address)
            is_valid = await self._verify(name, password) if may_try else None
        role = role_of(name, self._options)
        if is_valid is None or role is None:
            self._count_failure(address)
            return None
        return role, is_valid

    def _count_failure(self, address: str) -> None:
        source = source_of(address)
        since, count = self._failures.pop(source, (self._now(), 0))
        if self._now() >= since + FAILURES_S:
            since, count = self._now(), 0
        if len(self._failures) >= ADDRESSES_MAX:
            del self._failures[next(iter(self._failures))]
        self._failures[source] = since, count + 1


def source_of(address: str) -> str:
    """Who has an IPv6 address usually has its whole network of 64 bits, and could take another for each guess."""
    try:
        found = ipaddress.IPv6Address(address)
    except ValueError:
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(found) >> 64 << 64, 64)))


def check_can_verify(settings: ClientSettings) -> None:
    """Raises ValueError where the cluster lets the dashboard in whatever name and password a visitor gives."""
    has_passwords = settings.sasl_mechanism is not SaslMechanism.OAUTHBEARER
    if not settings.security_protocol.has_sasl or not has_passwords:
        raise ValueError(
            "--viewer and --operator check passwords by logging in to the cluster; connect to a listener with SASL "
            "and a mechanism with passwords, PLAIN or SCRAM (--command-config), or use --token"
        )


class _Login:
    """A user who has logged in to the cluster, and would be able to do so again."""

    def __init__(self, settings: ClientSettings, now: Callable[[], float]) -> None:
        self._settings = settings
        self._now = now
        self._check_at = now() + CHECKED_S
        self._checking = asyncio.Lock()

    async def try_it(self) -> bool:
        try:
            async with AsyncAdmin(self._settings):
                return True
        except AuthenticationError:
            return False

    async def is_valid(self) -> bool:
        async with self._checking:
            if self._now() < self._check_at:
                return True
            try:
                async with asyncio.timeout(CHECK_S_MAX):
                    is_valid = await self.try_it()
            except (KafkaError, OSError):  # TimeoutError is an OSError
                self._check_at = self._now() + CHECK_AGAIN_S
                return True
            if is_valid:
                self._check_at = self._now() + CHECKED_S
            return is_valid


def verify_by_logging_in(settings: ClientSettings, now: Callable[[], float] = time.monotonic) -> Verify:
    """Opens a connection to the cluster as the user."""

    async def verify(name: str, password: str) -> IsValid | None:
        own = replace(settings, sasl_username=name, sasl_password=password, sasl_jaas_config="")
        login = _Login(own, now)
        return login.is_valid if await login.try_it() else None

    return verify
