"""A connection whose client has to log in first.

Theory of operation. The steps are those of Kafka's SaslServerAuthenticator. Before a mechanism is agreed on, only
ApiVersions and SaslHandshake are answered, and anything else ends the connection. Then every request is a token of the
exchange (SaslAuthenticate; after a handshake of version 0, bare tokens), and another request is refused with
ILLEGAL_SASL_STATE. A failure is answered after `connection.failed.authentication.delay.ms`, and the connection closed.
Until a client is known its requests are small (`sasl.server.max.receive.size`) and its time is limited. A login with an
end (`connections.max.reauth.ms`, a token that expires) can be renewed by another handshake; after its end the
connection is closed.
"""

import logging
from enum import Enum, auto
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.connection import Connection
from headrace.broker.handlers import error_response, served_versions
from headrace.broker.security.sasl.exchange import LoginRefused, SaslExchange
from headrace.broker.security.sasl.logins import ListenerLogins
from headrace.broker.timers import Timer
from headrace.wire.apis import API_VERSIONS, RequestHeader, read_request_header, request_class
from headrace.wire.codec import MalformedMessage, read_message
from headrace.wire.errors import ErrorCode
from headrace.wire.message import Message
from headrace.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from headrace.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse
from headrace.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from headrace.wire.messages.sasl_handshake_response import SaslHandshakeResponse
from headrace.wire.security import SaslMechanism

if TYPE_CHECKING:
    from headrace.broker.server import Server

logger = logging.getLogger("headrace.broker")

HANDSHAKE = 17
HANDSHAKE_KEY = b"\x00\x11"
AUTHENTICATE = 36
LOGIN_S = 30.0
"""A client that is not known after so long is cut off."""
OTHER_BYTES_MAX = 4096
"""Another request in place of a token is answered up to this size: a refusal may be much larger than its request."""
LOGGED_MAX = 500
"""Characters of the reason in the log: a client that is not known chooses names, and must not fill the disk."""
HELD_BYTES_MAX = 64 << 20
"""Bytes of unfinished and waiting requests that are held for all clients that are not known."""
HELD_ALWAYS = 16 << 10
"""A client that has sent no more than this is not cut off because of what others have sent: a login is smaller."""
AGAIN_AFTER_MS = 1000
"""A client may log in again at most once in this time, as in Kafka."""


class LoginStep(Enum):
    FIRST = auto()
    """ApiVersions or a handshake may come."""
    HANDSHAKE = auto()
    """ApiVersions has come."""
    TOKENS = auto()
    DONE = auto()
    FAILED = auto()


class SaslConnection(Connection):
    def __init__(self, server: "Server", connection_id: int, listener: str, logins: ListenerLogins) -> None:
        super().__init__(server, connection_id, listener)
        self._logins = logins
        self._step = LoginStep.FIRST
        self._has_headers = True
        """Tokens come in SaslAuthenticate requests, not bare."""
        self._exchange: SaslExchange
        self._mechanism: SaslMechanism | None = None
        self._wrong_mechanism = ""
        self._is_again = False
        self._began_again_ms: int | None = None
        self._expires_ms: int | None = None
        self._failing: Timer | None = None
        self._held = 0
        settings = server.core.settings
        self._frames.size_max = settings.get_int("sasl.server.max.receive.size")
        self.known_by_s = server.loop.time() + LOGIN_S

    def connection_lost(self, error: Exception | None) -> None:
        if self._failing is not None:
            self._failing.cancel()
        self._hold(0)
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._hold(0 if self.known_by_s is None else len(self._frames) + self._waiting_bytes)
        is_too_much = self._server.held_for_unknown > HELD_BYTES_MAX
        if is_too_much and self._held > HELD_ALWAYS and not self._transport.is_closing():
            self._refuse("clients that have not logged in have sent too much")

    def _hold(self, held: int) -> None:
        self._server.held_for_unknown += held - self._held
        self._held = held

    def _may_start(self) -> bool:
        return self._step is not LoginStep.FAILED and super()._may_start()

    def _start(self, frame: bytes) -> None:
        if self._step is LoginStep.DONE:
            if frame.startswith(HANDSHAKE_KEY) and self._begin_again():
                self._choose(frame)
            elif self._has_expired():
                self._refuse("the login has expired")
            else:
                super()._start(frame)
        elif self._step is LoginStep.TOKENS:
            self._take_token(frame)
        else:
            self._choose(frame)

    def _now_ms(self) -> int:
        return self._core.clock.monotonic_ms()

    def _has_expired(self) -> bool:
        return self._expires_ms is not None and self._now_ms() > self._expires_ms

    def _begin_again(self) -> bool:
        """Whether a handshake starts a new login. If not, it is a request like others, and is refused as such."""
        now_ms = self._now_ms()
        if self._expires_ms is None:
            return False
        if self._began_again_ms is not None and now_ms - self._began_again_ms < AGAIN_AFTER_MS:
            return False
        self._began_again_ms = now_ms
        self._is_again = True
        self._step = LoginStep.HANDSHAKE
        return True

    def _choose(self, frame: bytes) -> None:
        try:
            header, position = read_request_header(frame)
            if header.api_key not in (API_VERSIONS, HANDSHAKE):
                self._fail(f"API {header.api_key} before the SASL handshake")
                return
            low, high = served_versions(header.api_key) or (0, -1)
            if not low <= header.api_version <= high:
                self._answer_unsupported(header)
                return
            request, _ = read_message(request_class(header.api_key), header.api_version, frame, position)
        except MalformedMessage as error:
            self._fail(str(error))
            return
        if isinstance(request, SaslHandshakeRequest):
            self._shake_hands(header, request)
        elif self._step is LoginStep.FIRST:
            response = self._core.handle(request, self._call(header))
            assert isinstance(response, Message)
            if not getattr(response, "error_code", 0):
                self._step = LoginStep.HANDSHAKE
            self._respond(self._encode(header, response))
        else:
            self._fail("a second ApiVersions before the SASL handshake")

    def _call(self, header: RequestHeader) -> Call:
        return Call(
            api_version=header.api_version,
            correlation_id=header.correlation_id,
            client_id=header.client_id,
            client_host="/" + self.address,
            connection_id=self.id,
            listener=self.listener,
        )

    def _shake_hands(self, header: RequestHeader, request: SaslHandshakeRequest) -> None:
        offered = self._logins.mechanisms()
        names = [each.value for each in offered]
        if request.mechanism not in names:
            refusal = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=names)
            self._fail(f"mechanism {request.mechanism[:40]!r} is not enabled", self._encode(header, refusal))
            return
        mechanism = SaslMechanism(request.mechanism)
        self._has_headers = header.api_version >= 1
        self._wrong_mechanism = ""
        if self._is_again and self._mechanism is not mechanism:
            self._wrong_mechanism = (
                f"SASL mechanism '{mechanism.value}' requested by client is not supported for re-authentication of "
                f"mechanism '{self._mechanism.value if self._mechanism else None}'"
            )
        else:
            self._mechanism = mechanism
        self._exchange = self._logins.begin(mechanism)
        self._step = LoginStep.TOKENS
        self._respond(self._encode(header, SaslHandshakeResponse(mechanisms=names)))

    def _take_token(self, frame: bytes) -> None:
        if not self._has_headers:
            self._take_bare_token(frame)
            return
        try:
            header, position = read_request_header(frame)
            versions = served_versions(header.api_key)
            is_served = versions is not None and versions[0] <= header.api_version <= versions[1]
            is_too_large = header.api_key != AUTHENTICATE and len(frame) > OTHER_BYTES_MAX
            if not is_served or is_too_large:
                self._fail(f"API {header.api_key} version {header.api_version} during the login")
                return
            request, _ = read_message(request_class(header.api_key), header.api_version, frame, position)
        except MalformedMessage as error:
            self._fail(str(error))
            return
        if not isinstance(request, SaslAuthenticateRequest):
            self._refuse_other(header, request)
            return
        try:
            answer, session_ms = self._evaluate(request.auth_bytes)
        except LoginRefused as refused:
            refusal = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=self._told(refused)
            )
            self._fail(str(refused), self._encode(header, refusal))
            return
        response = SaslAuthenticateResponse(auth_bytes=answer, session_lifetime_ms=session_ms)
        self._respond(self._encode(header, response))

    def _take_bare_token(self, frame: bytes) -> None:
        try:
            answer, _ = self._evaluate(frame)
        except LoginRefused as refused:
            self._fail(str(refused))
            return
        self._respond(bytearray(len(answer).to_bytes(4, "big") + answer))

    def _refuse_other(self, header: RequestHeader, request: Message) -> None:
        text = f"Unexpected Kafka request of type {type(request).__name__} during SASL authentication."
        response = error_response(request, ErrorCode.ILLEGAL_SASL_STATE, text, self._call(header))
        self._fail(text, self._encode(header, response))

    def _told(self, refused: LoginRefused) -> str:
        if refused.text is not None:
            return refused.text
        kind = "re-authentication" if self._is_again else "authentication"
        name = self._mechanism.value if self._mechanism is not None else ""
        return f"Authentication failed during {kind} due to invalid credentials with SASL mechanism {name}"

    def _evaluate(self, token: bytes) -> tuple[bytes, int]:
        """The answer, and how long the session lasts once the login is complete (0: no end); raises LoginRefused."""
        if self._wrong_mechanism:
            raise LoginRefused(self._wrong_mechanism)
        answer = self._exchange.answer(token)
        return answer, self._complete() if self._exchange.is_complete else 0

    def _complete(self) -> int:
        principal = f"User:{self._exchange.user}"
        if self._is_again and principal != self.principal:
            raise LoginRefused(
                f"Cannot change principals during re-authentication from {self.principal.replace(':', '.', 1)}: "
                f"{principal.replace(':', '.', 1)}"
            )
        assert self._mechanism is not None
        session_ms = self._session_ms(self._mechanism)
        self._expires_ms = self._now_ms() + session_ms if session_ms is not None else None
        if not self._is_again:
            self._core.metrics.count("successful-authentication-total", listener=self.listener)
            logger.debug("%s has logged in on %s from %s", principal, self.listener, self.address)
        self.principal = principal
        self.known_by_s = None
        self._frames.size_max = self._core.settings.get_int("socket.request.max.bytes")
        self._step = LoginStep.DONE
        return session_ms or 0

    def _session_ms(self, mechanism: SaslMechanism) -> int | None:
        """Until the earlier of the two ends, as Kafka counts; None for a login without an end."""
        limit_ms = self._logins.session_ms(mechanism)
        ends = [limit_ms] if limit_ms else []
        if self._exchange.expires_ms is not None:
            ends.append(max(0, self._exchange.expires_ms - self._core.clock.wall_ms()))
        return min(ends) if ends else None

    def _fail(self, why: str, answer: bytearray | None = None) -> None:
        """The answer leaves late, so that guessing takes time, and the connection is closed with it."""
        self._step = LoginStep.FAILED
        logger.info("login failed: %s (listener %s, from %s)", why[:LOGGED_MAX], self.listener, self.address)
        self._core.metrics.count("failed-authentication-total", listener=self.listener)
        delay_ms = self._core.settings.get_int("connection.failed.authentication.delay.ms")

        def end() -> None:
            if answer is not None and not self._transport.is_closing():
                self._send(answer)
            self.close()

        self._failing = self._core.timers.at(self._now_ms() + delay_ms, end)
