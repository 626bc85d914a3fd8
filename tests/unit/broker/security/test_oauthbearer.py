"""OAUTHBEARER: which tokens let a client in, and that a login ends with its token."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import RSAAlgorithm

from headrace import Broker
from headrace.broker.security.sasl.jwks import _fetch
from headrace.broker.settings import InvalidSettings
from tests.conformance.security.test_logins import is_closed, shake_hands
from tests.conformance.wire_client import WireClient

ISSUER, AUDIENCE = "https://issuer.example", "brokers"
LISTENER = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "OAUTHBEARER"}


@pytest.fixture(scope="module")
def key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


@pytest.fixture
def broker(tmp_path: Path, key: rsa.RSAPrivateKey) -> Iterator[Broker]:
    public = json.loads(RSAAlgorithm.to_jwk(key.public_key())) | {"kid": "one", "use": "sig"}
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"}
    of_one_algorithm = public | {"kid": "only RS256", "alg": "RS256"}
    unusable = [
        public | {"kid": "encrypts", "alg": "RSA-OAEP"},
        public | {"kid": "hashes", "alg": "HS256"},
        {"kty": "EC", "crv": "P-999", "x": "AA", "y": "AA", "kid": "new"},
        {"kty": "RSA", "kid": "empty"},
    ]
    keys = [*unusable, public, of_one_algorithm, secret]
    (tmp_path / "keys.json").write_text(json.dumps({"keys": keys}))
    settings = {
        **LISTENER,
        "sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "keys.json").as_uri(),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": f"{AUDIENCE},others",
        "connection.failed.authentication.delay.ms": 0,
    }
    with Broker(settings=settings) as running:
        yield running


def token(key: Any, *, kid: str = "one", algorithm: str = "RS256", **claims: Any) -> str:
    now = int(time.time())
    given = {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + 600, **claims}
    kept = {name: value for name, value in given.items() if value is not None}
    return jwt.encode(kept, key, algorithm=algorithm, headers={"kid": kid})


def present(wire: WireClient, bearer: str) -> Any:
    shake_hands(wire, "OAUTHBEARER")
    return wire.ask("sasl_authenticate", 2, auth_bytes=f"n,,\1auth=Bearer {bearer}\1\1".encode())


def test_a_good_token_lets_a_client_in_until_it_ends(broker: Broker, key: rsa.RSAPrivateKey) -> None:
    with WireClient(broker.bootstrap_servers) as wire:
        let_in = present(wire, token(key))
        assert (let_in.error_code, let_in.auth_bytes) == (0, b"")
        assert 0 < let_in.session_lifetime_ms <= 600_000
        assert wire.ask("list_groups", 4).error_code == 0
        broker.advance(601)
        wire.post_ask("list_groups", 4)
        assert is_closed(wire)


@pytest.mark.parametrize("algorithm", ["RS384", "PS256"])
def test_a_key_that_names_no_algorithm_is_good_for_all_of_its_type(
    broker: Broker, key: rsa.RSAPrivateKey, algorithm: str
) -> None:
    with WireClient(broker.bootstrap_servers) as wire:
        assert present(wire, token(key, algorithm=algorithm)).auth_bytes == b""
    assert_refused(broker, token(key, algorithm=algorithm, kid="only RS256"))


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://elsewhere.example"},
        {"aud": "somebody"},
        {"aud": None},
        {"exp": 1_000_000},
        {"exp": None},
        {"exp": 10**30},
        {"exp": 2**63 // 1000 + 1},
        {"sub": None},
        {"sub": ""},
        {"sub": "half a pair \ud800"},
        {"nbf": 2**40},
        {"kid": "two"},
    ],
)
def test_another_token_does_not(broker: Broker, key: rsa.RSAPrivateKey, claims: dict[str, Any]) -> None:
    assert_refused(broker, token(key, **claims))


def test_a_token_of_another_key_without_a_signature_or_with_a_shared_secret_does_not(broker: Broker) -> None:
    assert_refused(broker, token(rsa.generate_private_key(65537, 2048)))
    assert_refused(broker, token(None, algorithm="none"))
    assert_refused(broker, token("secret" * 8, algorithm="HS256"))
    assert_refused(broker, token("secret" * 8, algorithm="HS256", kid="shared"))
    assert_refused(broker, token(ec.generate_private_key(ec.SECP256R1()), algorithm="ES256"))
    assert_refused(broker, "opaque")


def assert_refused(broker: Broker, bearer: str) -> None:
    with WireClient(broker.bootstrap_servers) as wire:
        refused = present(wire, bearer)
        assert (refused.error_code, refused.auth_bytes) == (0, b'{"status":"invalid_token"}')
        refused = wire.ask("sasl_authenticate", 2, auth_bytes=b"\1")
        assert (refused.error_code, refused.error_message) == (58, '{"status":"invalid_token"}')
        assert is_closed(wire)


@pytest.mark.parametrize("message", [b"", b"n,,auth", b"n,,\1auth=Basic x\1\1", b"\xff"])
def test_what_is_no_message_of_it_is_refused(broker: Broker, message: bytes) -> None:
    with WireClient(broker.bootstrap_servers) as wire:
        shake_hands(wire, "OAUTHBEARER")
        assert wire.ask("sasl_authenticate", 2, auth_bytes=message).error_code == 58


@pytest.mark.parametrize("url", ["", "http://issuer.example/keys", "ftp://x"])
def test_keys_do_not_come_from_anywhere(url: str) -> None:
    with pytest.raises(InvalidSettings, match=r"sasl\.oauthbearer\.jwks\.endpoint\.url"):
        Broker(settings={**LISTENER, "sasl.oauthbearer.jwks.endpoint.url": url})


def test_a_redirect_does_not_lead_to_where_keys_may_not_come_from() -> None:
    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", "http://issuer.example/keys")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        serving = threading.Thread(target=server.handle_request)
        serving.start()
        with pytest.raises(ValueError, match=r"redirects to http://issuer\.example/keys"):
            _fetch(f"http://127.0.0.1:{server.server_port}/keys")
        serving.join()
