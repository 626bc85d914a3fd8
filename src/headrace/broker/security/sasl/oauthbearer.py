"""OAUTHBEARER (RFC 7628): a signed JWT in one token. Its signature, end, issuer and audience are checked."""

import logging
import re
from dataclasses import dataclass, field
from typing import Any

from headrace.broker.security.sasl.exchange import LoginRefused
from headrace.broker.security.sasl.jwks import JwksKeys

logger = logging.getLogger("headrace.broker")

INVALID = '{"status":"invalid_token"}'
NAME_MAX = 1024
EXPIRES_MS_MAX = 2**63 - 1
"""What an answer can tell."""
_INITIAL = re.compile(
    r"n,(?:a=(?P<authorized>[^,]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)*)\x01"
)


@dataclass(frozen=True, slots=True)
class TokenRules:
    keys: JwksKeys = field(repr=False)
    issuer: str | None = None
    audience: tuple[str, ...] = ()
    skew_s: int = 30
    name_claim: str = "sub"

    def read(self, token: str) -> tuple[str, int]:
        """The user's name and the token's end in milliseconds; raises ValueError with the reason."""
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            key = self.keys.get(header.get("kid"))
            if key is None:
                raise ValueError("the token is signed with an unknown key")
            claims: dict[str, Any] = jwt.decode(
                token,
                key.public,
                algorithms=key.algorithms,
                audience=self.audience or None,
                issuer=self.issuer,
                leeway=self.skew_s,
                options={"require": ["exp", self.name_claim], "verify_aud": bool(self.audience)},
            )
        except jwt.PyJWTError as error:
            raise ValueError(str(error)) from None
        name = claims[self.name_claim]
        if not isinstance(name, str) or not 0 < len(name.strip()) <= NAME_MAX:
            raise ValueError(f"the token's {self.name_claim} is not a name")
        name.encode()  # half a surrogate pair is not a name, either
        expires_ms = int(claims["exp"]) * 1000
        if expires_ms > EXPIRES_MS_MAX:
            raise ValueError("the token's exp is not a time in seconds")
        return name, expires_ms


class OAuthBearerExchange:
    def __init__(self, rules: TokenRules) -> None:
        self._rules = rules
        self._is_refused = False
        self.user = ""
        self.expires_ms: int | None = None

    @property
    def is_complete(self) -> bool:
        return bool(self.user)

    def answer(self, token: bytes) -> bytes:
        if self._is_refused:  # the client has been told, and says that it knows
            raise LoginRefused(INVALID)
        found = _INITIAL.fullmatch(token.decode(errors="replace"))
        if found is None:
            raise LoginRefused(why="the client's first OAUTHBEARER message cannot be read")
        pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
        scheme, _, bearer = pairs.get("auth", "").partition(" ")
        if scheme.lower() != "bearer":
            raise LoginRefused(why="the client's first OAUTHBEARER message has no bearer token")
        try:
            name, expires_ms = self._rules.read(bearer.strip())
        except ValueError as error:
            logger.info("token refused: %s", error)
            self._is_refused = True
            return INVALID.encode()
        if found["authorized"] and found["authorized"] != name:
            raise LoginRefused(
                f"Authentication failed: Client requested an authorization id ({found['authorized'][:100]}) that is "
                f"different from the token's principal name ({name})"
            )
        self.user, self.expires_ms = name, expires_ms
        return b""
