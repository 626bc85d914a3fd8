"""One login under way: what a client's tokens are answered with, until it is known who it is."""

from typing import Protocol


class LoginRefused(Exception):
    """The client is not let in. The text is told to it, so it says nothing about users and passwords.

    Without a text the client is told Kafka's general one for wrong credentials; `why` is for the broker's log.
    """

    def __init__(self, text: str | None = None, *, why: str = "") -> None:
        super().__init__(text or why or "wrong credentials")
        self.text = text


class SaslExchange(Protocol):
    user: str
    """Known once the exchange is complete."""
    expires_ms: int | None
    """When the credential itself ends, in milliseconds since 1970."""

    @property
    def is_complete(self) -> bool: ...

    def answer(self, token: bytes) -> bytes:
        """The answer to the client's next token; raises LoginRefused."""
