"""Where a token for OAUTHBEARER comes from: a function of the user's, a file, or a token endpoint.

It is asked for at every login, so it is never older than its connection's last login; brokers that bound a session by
the token's life (KIP-368) are logged in to again in time. Whoever finds that too often keeps the token in the function.
"""

import asyncio
import base64
import importlib
import inspect
import json
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from headrace.client.errors import error_for
from headrace.client.settings import ClientSettings
from headrace.wire.errors import ErrorCode, KafkaError

SECONDS = 10
_ANSWER_BYTES_MAX = 1 << 20


async def fetch_token(settings: ClientSettings, *, about: str) -> str:
    """A KafkaError that may pass, where there is none just now: it is asked for again with the next connection."""
    try:
        token = await _fetch(settings)
    except KafkaError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise error_for(
            ErrorCode.NETWORK_EXCEPTION,
            f"no token for OAUTHBEARER from {_name(settings)}: {said}",
            about=about,
        ) from error
    if not isinstance(token, str) or not token.strip() or "\1" in token:
        raise error_for(
            ErrorCode.SASL_AUTHENTICATION_FAILED,
            f"{_name(settings)} must return a non-empty str, got {_shown(token)}",
            about=about,
        )
    return token.strip()


def _shown(token: Any) -> str:
    """What was returned in place of a token, without its text: it may be part of a secret."""
    if not isinstance(token, str):
        return type(token).__name__
    return "a str with the character \\x01" if token.strip() else "an empty str"


def _name(settings: ClientSettings) -> str:
    if settings.sasl_oauthbearer_token_provider:
        return f"sasl.oauthbearer.token.provider={settings.sasl_oauthbearer_token_provider!r}"
    return f"sasl.oauthbearer.token.endpoint.url={settings.sasl_oauthbearer_token_endpoint_url!r}"


async def _fetch(settings: ClientSettings) -> Any:
    if settings.sasl_oauthbearer_token_provider:
        return await _call(settings.sasl_oauthbearer_token_provider)
    url = settings.sasl_oauthbearer_token_endpoint_url
    if url.startswith("file:"):
        path = urllib.request.url2pathname(urllib.parse.urlsplit(url).path)
        return await asyncio.to_thread(Path(path).read_text)
    return await asyncio.to_thread(_ask, settings, url)


async def _call(name: str) -> Any:
    module, _, attribute = name.partition(":")
    function: Any = await asyncio.to_thread(importlib.import_module, module)
    for part in attribute.split("."):
        function = getattr(function, part)
    if inspect.iscoroutinefunction(function):
        found = await function()
    else:
        found = await asyncio.to_thread(function)
    return (
        found[0] if isinstance(found, tuple) and found else found
    )  # (token, when it ends), as of AWS's signer


def _ask(settings: ClientSettings, url: str) -> Any:
    """OAuth 2's client credentials (RFC 6749, 4.4)."""
    form = {"grant_type": "client_credentials"}
    if settings.sasl_oauthbearer_scope:
        form["scope"] = settings.sasl_oauthbearer_scope
    client = (
        settings.sasl_oauthbearer_client_credentials_client_id,
        settings.sasl_oauthbearer_client_credentials_client_secret,
    )
    login = base64.b64encode(":".join(map(urllib.parse.quote_plus, client)).encode()).decode()
    headers = {"Authorization": f"Basic {login}", "Accept": "application/json"}
    request = urllib.request.Request(url, urllib.parse.urlencode(form).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            return json.loads(answer.read(_ANSWER_BYTES_MAX))["access_token"]
    except urllib.error.HTTPError as error:
        with error:
            said = error.read(500).decode(errors="replace")
        raise ValueError(f"{error.code} {error.reason} {said}".strip()) from None
    except KeyError:
        raise ValueError("the response has no access_token") from None
