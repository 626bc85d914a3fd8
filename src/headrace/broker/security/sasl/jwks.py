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
from typing import Any

from headrace.broker.settings import InvalidSettings

logger = logging.getLogger("headrace.broker")

FETCH_S = 10.0
SOON_S = 5.0
"""Unknown keys do not make it read more often than this."""
DOCUMENT_BYTES_MAX = 1 << 20
KEYS_MAX = 100
_URL = re.compile(r"https://|file:/|http://(localhost|127\.0\.0\.1|\[::1\])[:/]")
ASYMMETRIC = ("RSA", "EC", "OKP")


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
        self._keys: Mapping[str | None, Any] = {}
        self._is_wanted = threading.Event()
        self._is_over = threading.Event()
        self._loaded = threading.Event()
        threading.Thread(target=self._run, name="headrace-jwks", daemon=True).start()

    def get(self, key_id: str | None) -> Any:
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


def _fetch(url: str) -> bytes:
    if url.startswith("file:"):
        path = Path(urllib.request.url2pathname(urllib.parse.urlparse(url).path))
        with path.open("rb") as file:
            return file.read(DOCUMENT_BYTES_MAX)
    with urllib.request.urlopen(url, timeout=FETCH_S) as response:
        data: bytes = response.read(DOCUMENT_BYTES_MAX)
        return data


def parse_keys(document: bytes) -> dict[str | None, Any]:
    """Keys by their ids. Only public ones: with a shared secret, whoever can check a token could also make one."""
    from jwt import PyJWK

    found = json.loads(document)["keys"]
    return {
        entry.get("kid"): PyJWK(entry)
        for entry in found[:KEYS_MAX]
        if entry.get("kty") in ASYMMETRIC and entry.get("use", "sig") == "sig"
    }
