"""SCRAM-SHA-256 and -512 (RFC 5802, without channel binding, as Kafka speaks it): two tokens of the client.

A client that names an unknown user gets a first answer like any other, and fails with the second: it learns no names.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets

from headrace.broker.security.sasl.exchange import LoginRefused
from headrace.broker.security.scram import HASHES, ITERATIONS_MIN
from headrace.broker.security.users import Users
from headrace.wire.security import SaslMechanism

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\U0010ffff]|=2C|=3D)+"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_FIRST = re.compile(
    rf"(?P<header>n,(?:a=(?P<authorized>{_NAME}))?,)(?P<bare>(?:m={_VALUE},)?n=(?P<name>{_NAME}),"
    rf"r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+={_VALUE})*)"
)
_FINAL = re.compile(
    rf"(?P<unproven>c=(?P<binding>[a-zA-Z0-9/+=]+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]+={_VALUE})*)"
    r",p=(?P<proof>[a-zA-Z0-9/+=]+)"
)


class ScramExchange:
    expires_ms: int | None = None

    def __init__(self, mechanism: SaslMechanism, users: Users) -> None:
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._users = users
        self._name = ""
        self.user = ""
        self._header = self._bare = self._nonce = self._first_answer = ""

    @property
    def is_complete(self) -> bool:
        return bool(self.user)

    def answer(self, token: bytes) -> bytes:
        try:
            text = token.decode()
        except UnicodeDecodeError:
            raise LoginRefused(why="a SCRAM message that is not UTF-8") from None
        return self._final(text) if self._first_answer else self._first(text)

    def _first(self, text: str) -> bytes:
        found = _FIRST.fullmatch(text)
        if found is None:
            raise LoginRefused(why="the client's first SCRAM message cannot be read")
        self._name = found["name"].replace("=2C", ",").replace("=3D", "=")
        if found["authorized"] and found["authorized"] != found["name"]:
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self._credential = self._users.credentials(self._name).get(self._mechanism) or self._users.decoy(
            self._name, self._mechanism
        )
        if self._credential.iterations < ITERATIONS_MIN:
            raise LoginRefused(why=f"the credential has fewer than {ITERATIONS_MIN} iterations")
        self._header, self._bare = found["header"], found["bare"]
        self._nonce = found["nonce"] + secrets.token_urlsafe(24)
        salt = base64.b64encode(self._credential.salt).decode()
        self._first_answer = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        return self._first_answer.encode()

    def _final(self, text: str) -> bytes:
        found = _FINAL.fullmatch(text)
        if found is None:
            raise LoginRefused(why="the client's final SCRAM message cannot be read")
        if not hmac.compare_digest(found["nonce"].encode(), self._nonce.encode()):
            raise LoginRefused(why="the client's final SCRAM message has another nonce")
        try:
            proof = base64.b64decode(found["proof"], validate=True)
            binding = base64.b64decode(found["binding"], validate=True)
        except binascii.Error:
            raise LoginRefused(why="the client's final SCRAM message cannot be read") from None
        if binding != self._header.encode():
            raise LoginRefused(why="the client's final SCRAM message has another header")
        signed = ",".join([self._bare, self._first_answer, found["unproven"]]).encode()
        signature = hmac.digest(self._credential.stored_key, signed, self._hash)
        if len(proof) != len(signature):
            raise LoginRefused(why=f"user {self._name!r}: wrong password, or no such user")
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        if not hmac.compare_digest(hashlib.new(self._hash, client_key).digest(), self._credential.stored_key):
            raise LoginRefused(why=f"user {self._name!r}: wrong password, or no such user")
        self.user = self._name
        proven = hmac.digest(self._credential.server_key, signed, self._hash)
        return b"v=" + base64.b64encode(proven)
