"""OAUTHBEARER: where the token comes from, what is said to the broker, and what a refusal says."""

import asyncio
import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.client.connection import BrokerConnection
from headrace.client.errors import BrokerNotAvailableError, ConnectionLost, SaslAuthenticationError
from headrace.client.settings import Address, ClientSettings
from headrace.client.tokens import fetch_token
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from headrace.wire.messages.sasl_authenticate_response import SaslAuthenticateResponse
from headrace.wire.messages.sasl_handshake_response import SaslHandshakeResponse
from tests.unit.client.misbehaving import ScriptedBroker
from tests.unit.client.talk import run, settings_for

HERE = "tests.unit.client.test_tokens"


def plain() -> str:
    return "a.b.c"


async def awaited() -> str:
    await asyncio.sleep(0)
    return "a.b.c"


def with_expiry() -> tuple[str, int]:
    return "a.b.c", 1_700_000_000_000


def broken() -> str:
    raise RuntimeError("the sign-in page is away")


def nothing() -> None:
    return None


def settings(**keywords: Any) -> ClientSettings:
    given = {
        "bootstrap_servers": "localhost:1",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "OAUTHBEARER",
    }
    return ClientSettings.parse({**given, **keywords})


def token(**keywords: Any) -> str:
    return run(fetch_token(settings(**keywords), about="it"))


@pytest.mark.parametrize("function", ["plain", "awaited", "with_expiry"])
def test_a_function_gives_the_token(function: str) -> None:
    assert token(sasl_oauthbearer_token_provider=f"{HERE}:{function}") == "a.b.c"


def test_a_function_that_fails_may_do_better_the_next_time() -> None:
    with pytest.raises(ConnectionLost, match=r"test_tokens:broken'.*RuntimeError: the sign-in page is away"):
        token(sasl_oauthbearer_token_provider=f"{HERE}:broken")
    with pytest.raises(ConnectionLost, match="No module named 'no_such_module'"):
        token(sasl_oauthbearer_token_provider="no_such_module:token")


def test_what_is_no_token_is_refused() -> None:
    with pytest.raises(SaslAuthenticationError, match="must return a non-empty str, got NoneType"):
        token(sasl_oauthbearer_token_provider=f"{HERE}:nothing")


def test_a_file_is_read_for_every_login(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    for text in ("first\n", "second\n"):
        file.write_text(text)
        assert token(sasl_oauthbearer_token_endpoint_url=file.as_uri()) == text.strip()
    file.unlink()
    with pytest.raises(ConnectionLost, match="No such file"):
        token(sasl_oauthbearer_token_endpoint_url=file.as_uri())


Answer = tuple[int, str]


@pytest.fixture
def endpoint() -> Iterator[tuple[str, list[tuple[str, str]], Callable[[Answer], None]]]:
    """Its address, what it was asked, and a way to say what it answers."""
    asked: list[tuple[str, str]] = []
    answers: list[Answer] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            asked.append((self.headers["Authorization"], body))
            status, text = answers[-1]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/token", asked, answers.append
        finally:
            server.shutdown()
            thread.join()


def test_an_endpoint_is_asked_by_client_credentials(
    endpoint: tuple[str, list[tuple[str, str]], Callable[[Answer], None]],
) -> None:
    url, asked, answer = endpoint
    given = {
        "sasl_oauthbearer_token_endpoint_url": url,
        "sasl_oauthbearer_client_id": "me",
        "sasl_oauthbearer_client_secret": "se:cret",
        "sasl_oauthbearer_scope": "kafka read",
    }
    answer((200, '{"access_token": "x.y.z", "expires_in": 60}'))
    assert token(**given) == "x.y.z"
    assert asked == [("Basic bWU6c2UlM0FjcmV0", "grant_type=client_credentials&scope=kafka+read")]
    answer((401, '{"error": "invalid_client"}'))
    with pytest.raises(ConnectionLost, match=r"401 Unauthorized.*invalid_client"):
        token(**given)
    answer((200, "{}"))
    with pytest.raises(ConnectionLost, match="no access_token"):
        token(**given)


async def log_in(
    answer: Callable[[SaslAuthenticateRequest, int], SaslAuthenticateResponse], function: str
) -> None:
    script = {"sasl_handshake": lambda *_: SaslHandshakeResponse(), "sasl_authenticate": answer}
    async with ScriptedBroker(script) as broker:
        given = settings_for(
            broker.address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_provider=f"{HERE}:{function}",
            sasl_oauthbearer_extensions="lkc=1, pool=a",
        )
        connection = await BrokerConnection.open(Address("127.0.0.1", broker.port), given)
        await connection.close()


def test_the_broker_is_told_the_token_and_the_extensions() -> None:
    said: list[bytes] = []

    def answer(request: SaslAuthenticateRequest, _: int) -> SaslAuthenticateResponse:
        said.append(request.auth_bytes)
        return SaslAuthenticateResponse()

    run(log_in(answer, "plain"))
    assert said == [b"n,,\1auth=Bearer a.b.c\1lkc=1\1pool=a\1\1"]


def test_a_refusal_says_what_the_broker_said() -> None:
    said: list[bytes] = []

    def answer(request: SaslAuthenticateRequest, _: int) -> SaslAuthenticateResponse:
        said.append(request.auth_bytes)
        if len(said) == 1:
            return SaslAuthenticateResponse(auth_bytes=b'{"status":"invalid_token"}')
        return SaslAuthenticateResponse(
            error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message="expired"
        )

    with pytest.raises(SaslAuthenticationError, match=r"refused the token.*invalid_token.*expired"):
        run(log_in(answer, "plain"))
    assert said[1] == b"\1"


def test_a_connection_without_a_token_is_tried_again_like_one_to_a_broker_that_is_away() -> None:
    with pytest.raises(BrokerNotAvailableError, match="no token for OAUTHBEARER"):
        run(log_in(lambda *_: SaslAuthenticateResponse(), "broken"))
