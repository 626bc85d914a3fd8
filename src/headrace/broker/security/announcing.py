"""What the log says of each listener at start: who may use it, and a warning where that is more than one may think."""

import logging
import re
from collections.abc import Iterator, Sequence

from headrace.base.names import nearest
from headrace.broker.security.listeners import BrokerListener
from headrace.broker.security.sasl.logins import JWKS_URL, mechanisms_of
from headrace.broker.security.tls import client_auth
from headrace.broker.settings import Settings
from headrace.broker.settings.access_table import split_principals
from headrace.broker.settings.security_table import LISTENER_PREFIX
from headrace.wire.security import SaslMechanism

logger = logging.getLogger("headrace.broker")
REVEALING = frozenset({SaslMechanism.PLAIN, SaslMechanism.OAUTHBEARER})
"""Mechanisms that send what others could log in with. SCRAM sends a proof."""
ANOTHER_PRINCIPAL = re.compile(r"\s*,\s*(?=[A-Za-z]+:)")
"""A comma before what looks like one more principal. The names of certificates have commas, too."""
CURE = "Listen on localhost, or use a listener with SASL_SSL (docs: Secure the broker)."


def announce(settings: Settings, listener: BrokerListener) -> None:
    host, port = listener.advertised or (listener.host, listener.port)
    logger.info(
        "listener %s advertised=%s:%d protocol=%s open to %s",
        listener,
        host,
        port,
        listener.protocol.value,
        open_to(settings, listener),
    )
    danger = _danger(settings, listener)
    if danger is not None:
        logger.warning("listener %s: %s. %s", listener, danger, CURE)
    if takes_any_token(settings, listener):
        logger.warning(
            "listener %s: every token that is signed with a key of %s is accepted, even one for another service. "
            "Set sasl.oauthbearer.expected.audience and sasl.oauthbearer.expected.issuer (docs: Secure the broker).",
            listener,
            settings.listener_value(listener.name, JWKS_URL, SaslMechanism.OAUTHBEARER.value),
        )


def announce_doubts(settings: Settings, listeners: Sequence[BrokerListener]) -> None:
    """Warnings about settings of access that are allowed, and hardly what somebody meant."""
    for doubt in (*_unused_listeners(settings, listeners), *_joined_principals(settings)):
        logger.warning("%s", doubt)


def _unused_listeners(settings: Settings, listeners: Sequence[BrokerListener]) -> Iterator[str]:
    names = [listener.name.lower() for listener in listeners]
    controllers = {name.lower() for name in settings.get_list("controller.listener.names")}
    for setting in sorted(settings.given()):
        if setting.startswith(LISTENER_PREFIX):
            name = setting.removeprefix(LISTENER_PREFIX).partition(".")[0]
            if name not in {*names, *controllers}:
                meant = nearest(name, names) or " or ".join(names)
                yield (
                    f"{setting} has no effect: no listener has the name {name.upper()}. Add it to listeners, or "
                    f"use the name of a listener: {LISTENER_PREFIX}{meant}.*"
                )


def _joined_principals(settings: Settings) -> Iterator[str]:
    for principal in split_principals(settings.get_str("super.users")):
        parts = ANOTHER_PRINCIPAL.split(principal)
        if len(parts) > 1:
            yield (
                f"super.users={principal} names a single principal. If it is meant to name {len(parts)}, separate them "
                f"with semicolons: super.users={';'.join(parts)}"
            )


def open_to(settings: Settings, listener: BrokerListener) -> str:
    if listener.protocol.has_sasl:
        names = [each.value for each in mechanisms_of(settings, listener.name)]
        return f"users that log in with {', '.join(names)}"
    if listener.protocol.has_tls and client_auth(settings, listener) == "required":
        return "clients with a trusted certificate"
    return "everybody on this machine" if listener.is_loopback else "everybody who can reach it"


def takes_any_token(settings: Settings, listener: BrokerListener) -> bool:
    """Apache Kafka allows it, so it is not an error."""
    if not listener.protocol.has_sasl or SaslMechanism.OAUTHBEARER not in mechanisms_of(
        settings, listener.name
    ):
        return False
    name = "sasl.oauthbearer.expected.audience"
    return not settings.listener_value(listener.name, name, SaslMechanism.OAUTHBEARER.value)


def _danger(settings: Settings, listener: BrokerListener) -> str | None:
    if listener.is_loopback:
        return None
    if listener.protocol.has_sasl:
        if listener.protocol.has_tls or REVEALING.isdisjoint(mechanisms_of(settings, listener.name)):
            return None
        return "passwords or tokens cross the network unencrypted"
    if listener.protocol.has_tls:
        is_open = client_auth(settings, listener) != "required"
        return "everybody who can reach it may use it, without a login" if is_open else None
    return "everybody who can reach it may use it, without a login or encryption"
