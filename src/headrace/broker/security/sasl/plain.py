"""PLAIN (RFC 4616): name and password in one token. The users are in the listener's JAAS line."""

import hmac
from collections.abc import Mapping

from headrace.broker.security.sasl.exchange import LoginRefused

USER_OPTION = "user_"


class PlainExchange:
    expires_ms: int | None = None

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.user = ""

    @property
    def is_complete(self) -> bool:
        return bool(self.user)

    def answer(self, token: bytes) -> bytes:
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise LoginRefused(why="a PLAIN token that is not UTF-8") from None
        if len(parts) != 3:
            raise LoginRefused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorized, name, password = parts
        if not name:
            raise LoginRefused("Authentication failed: username not specified")
        if not password:
            raise LoginRefused("Authentication failed: password not specified")
        expected = self._passwords.get(name)
        is_right = hmac.compare_digest(password.encode(), (expected if expected is not None else "").encode())
        if expected is None or not is_right:
            raise LoginRefused("Authentication failed: Invalid username or password")
        if authorized and authorized != name:
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user = name
        return b""


def passwords_of(options: Mapping[str, str]) -> dict[str, str]:
    """The `user_NAME` options of a JAAS line. Its `username` and `password` are for Kafka's own connections."""
    return {
        name.removeprefix(USER_OPTION): password
        for name, password in options.items()
        if name.startswith(USER_OPTION)
    }
