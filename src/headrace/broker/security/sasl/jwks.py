"""The keys that tokens are signed with: a JWKS document, from a file or an authorization server, read now and then.

A thread of its own reads it: a server that does not answer must hold up nobody. A token that names an unknown key makes
it read again at once, but not more often than every few seconds. Keys that cannot be read are logged, and those that
are known stay.
"""

import json
import logging
import re
import threading
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from headrace.broker.settings import InvalidSettings

logger = logging.getLogger("headrace.broker")

FETCH_S = 10.0
SOON_S = 5.0
"""Unknown keys do not make it read more often than this."""
DOCUMENT_BYTES_MAX = 1 << 20
KEYS_MAX = 100
_URL = re.compile(r"https://|file:/|http://(localhost|127\.0\.0\.1|\[::1\])[:/]")
ASYMMETRIC = ("RSA", "EC", "OKP")
OF_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
ALGORITHMS = frozenset({*OF_RSA, "ES256", "ES384", "ES512", "EdDSA"})


class TokenKey(NamedTuple):
    public: Any
    algorithms: tuple[str, ...]
    """What a token may be signed with by this key."""


def check_url(url: str) -> None:
    """Raises InvalidSettings for a URL that keys should not come from, and where PyJWT is missing."""
    name = "sasl.oauthbearer.jwks.endpoint.url"
    if not url:
        raise InvalidSettings(f"{name} is missing: OAUTHBEARER needs the keys that tokens are signed with")
    if not _URL.match(url):
        raise InvalidSettings(
            f"{name}={url} must begin with https:// or file:/ (http:// only for this machine)"
        )
    try:
        import jwt  # noqa: F401
    except ImportError:
        raise InvalidSettings(
            "sasl.enabled.mechanisms=OAUTHBEARER needs the package PyJWT: pip install 'headrace[oauth]'"
        ) from None


class JwksKeys:
    def __init__(self, url: str, *, refresh_s: float) -> None:
        self.url = url
        self._refresh_s = refresh_s
        self._keys: Mapping[str | None, TokenKey] = {}
        self._is_wanted = threading.Event()
        self._is_over = threading.Event()
        self._loaded = threading.Event()
        threading.Thread(target=self._run, name="headrace-jwks", daemon=True).start()

    def get(self, key_id: str | None) -> TokenKey | None:
        """The key of this id; None where there is none yet. Without an id, the only key there is."""
        keys = self._keys
        if key_id is None and len(keys) == 1:
            return next(iter(keys.values()))
        found = keys.get(key_id)
        if found is None:
            self._is_wanted.set()
        return found

    def wait(self, timeout_s: float) -> bool:
        """Until the first try is over, so that a start does not refuse the first clients."""
        return self._loaded.wait(timeout_s)

    def close(self) -> None:
        self._is_over.set()
        self._is_wanted.set()

    def _run(self) -> None:
        while not self._is_over.is_set():
            try:
                self._keys = parse_keys(_fetch(self.url))
            except Exception as error:  # whatever comes from outside: the keys that are known stay
                logger.warning("the keys of tokens cannot be read from %s: %s", self.url, error)
            self._loaded.set()
            self._is_over.wait(SOON_S)
            self._is_wanted.wait(max(0.0, self._refresh_s - SOON_S))
            self._is_wanted.clear()


class _Redirects(urllib.request.HTTPRedirectHandler):
    """A redirect must not lead to where keys may not come from: who can change keys on their way makes tokens."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if not _URL.match(newurl) or newurl.startswith("file:"):
            raise ValueError(f"it redirects to {newurl}, which is not https")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _fetch(url: str) -> bytes:
    if url.startswith("file:"):
        path = Path(urllib.request.url2pathname(urllib.parse.urlparse(url).path))
        with path.open("rb") as file:
            return file.read(DOCUMENT_BYTES_MAX)
    with urllib.request.build_opener(_Redirects).open(url, timeout=FETCH_S) as response:
        data: bytes = response.read(DOCUMENT_BYTES_MAX)
        return data


def parse_keys(document: bytes) -> dict[str | None, TokenKey]:
    """Keys by their ids. Only public ones: with a shared secret, whoever can check a token could also make one.

    A key that cannot be used does not keep the others from being used.
    """
    keys = {}
    for entry in json.loads(document)["keys"][:KEYS_MAX]:
        if entry.get("kty") not in ASYMMETRIC or entry.get("use", "sig") != "sig":
            continue
        try:
            keys[entry.get("kid")] = _parse_key(entry)
        except Exception as error:
            logger.warning("key %.100r of tokens cannot be used: %.200s", entry.get("kid"), error)
    return keys


def _parse_key(entry: Mapping[str, Any]) -> TokenKey:
    """Without an `alg`, a key of RSA is good for all algorithms of RSA, and another for the one of its curve."""
    from jwt import PyJWK

    key = PyJWK(dict(entry))
    if entry["kty"] == "RSA" and "alg" not in entry:
        return TokenKey(key.key, OF_RSA)
    if key.algorithm_name not in ALGORITHMS:
        raise ValueError(f"{key.algorithm_name} is not accepted")
    return TokenKey(key.key, (key.algorithm_name,))
