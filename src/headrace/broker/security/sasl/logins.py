"""How clients log in on one listener: its mechanisms, and a new exchange for each login."""

from typing import TYPE_CHECKING

from headrace.base.jaas import parse_jaas
from headrace.base.settings import Value
from headrace.broker.security.listeners import BrokerListener
from headrace.broker.security.sasl.exchange import SaslExchange
from headrace.broker.security.sasl.jwks import JwksKeys, check_url
from headrace.broker.security.sasl.oauthbearer import OAuthBearerExchange, TokenRules
from headrace.broker.security.sasl.plain import PlainExchange, passwords_of
from headrace.broker.security.sasl.scram import ScramExchange
from headrace.broker.security.scram import HASHES
from headrace.broker.settings import InvalidSettings, Settings
from headrace.wire.security import SaslMechanism

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

MODULES = {
    SaslMechanism.PLAIN: "PlainLoginModule",
    SaslMechanism.SCRAM_SHA_256: "ScramLoginModule",
    SaslMechanism.SCRAM_SHA_512: "ScramLoginModule",
    SaslMechanism.OAUTHBEARER: "OAuthBearerLoginModule",
}
JWKS_URL = "sasl.oauthbearer.jwks.endpoint.url"
FIRST_KEYS_S = 5.0
KERBEROS = "GSSAPI"


class ListenerLogins:
    def __init__(self, core: "BrokerCore", listener: str) -> None:
        self._core = core
        self._listener = listener
        self._revision = -1
        self._mechanisms: list[SaslMechanism] = []
        self._passwords: dict[str, str] = {}
        self._rules: TokenRules | None = None
        self._follow_settings()

    def mechanisms(self) -> list[SaslMechanism]:
        self._follow_settings()
        return self._mechanisms

    def _follow_settings(self) -> None:
        settings = self._core.settings
        if settings.revision != self._revision:
            self._mechanisms = mechanisms_of(settings, self._listener)
            self._passwords = jaas_passwords(settings, self._listener)
            if SaslMechanism.OAUTHBEARER in self._mechanisms:
                self._rules = token_rules(settings, self._listener, self._rules)
            self._revision = settings.revision

    def begin(self, mechanism: SaslMechanism) -> SaslExchange:
        self._follow_settings()
        if mechanism in HASHES:
            return ScramExchange(mechanism, self._core.users)
        if mechanism is SaslMechanism.OAUTHBEARER:
            assert self._rules is not None
            return OAuthBearerExchange(self._rules)
        return PlainExchange(self._passwords)

    def close(self) -> None:
        if self._rules is not None:
            self._rules.keys.close()

    def session_ms(self, mechanism: SaslMechanism) -> int:
        """How long a login lasts; 0 for as long as the connection."""
        value = self._core.settings.listener_value(
            self._listener, "connections.max.reauth.ms", mechanism.value
        )
        return max(0, value) if isinstance(value, int) else 0


def mechanisms_of(settings: Settings, listener: str) -> list[SaslMechanism]:
    """Those that are offered. What else the settings name is refused at start."""
    value = settings.listener_value(listener, "sasl.enabled.mechanisms")
    offered = {each.value for each in SaslMechanism}
    return [SaslMechanism(name) for name in value if name in offered] if isinstance(value, tuple) else []


def jaas_passwords(settings: Settings, listener: str) -> dict[str, str]:
    line = settings.listener_value(listener, "sasl.jaas.config", SaslMechanism.PLAIN.value)
    return passwords_of(parse_jaas(str(line)).options) if line else {}


def token_rules(settings: Settings, listener: str, before: TokenRules | None) -> TokenRules:
    def value(name: str) -> Value | None:
        return settings.listener_value(listener, name, SaslMechanism.OAUTHBEARER.value)

    url, refresh_ms = str(value(JWKS_URL)), value("sasl.oauthbearer.jwks.endpoint.refresh.ms")
    assert isinstance(refresh_ms, int)
    if before is not None and before.keys.url == url:
        keys = before.keys
    else:
        keys = JwksKeys(url, refresh_s=refresh_ms / 1000)
        if before is not None:
            before.keys.close()
        elif url.startswith("file:"):
            keys.wait(FIRST_KEYS_S)
    issuer, audience = value("sasl.oauthbearer.expected.issuer"), value("sasl.oauthbearer.expected.audience")
    skew_s = value("sasl.oauthbearer.clock.skew.seconds")
    assert isinstance(skew_s, int)
    return TokenRules(
        keys,
        issuer=str(issuer) if issuer else None,
        audience=audience if isinstance(audience, tuple) else (),
        skew_s=skew_s,
        name_claim=str(value("sasl.oauthbearer.sub.claim.name")),
    )


def check_logins(settings: Settings, listener: BrokerListener) -> None:
    """Raises InvalidSettings where nobody could log in on the listener, or not as the settings say."""
    if not listener.protocol.has_sasl:
        return
    prefix = f"listener.name.{listener.name.lower()}"
    names = settings.listener_value(listener.name, "sasl.enabled.mechanisms")
    assert isinstance(names, tuple)
    others = [name for name in names if name != KERBEROS]
    cure = f"set {prefix}.sasl.enabled.mechanisms={','.join(others) or SaslMechanism.SCRAM_SHA_512.value}"
    if not names:
        raise InvalidSettings(
            f"sasl.enabled.mechanisms: listener {listener.name} has no mechanism, so nobody could log in; {cure}"
        )
    if KERBEROS in names:
        default = "" if others else ", which is Kafka's default,"
        raise InvalidSettings(
            f"sasl.enabled.mechanisms={','.join(names)}: {KERBEROS} (Kerberos){default} is not supported; "
            f"remove it for listener {listener.name}: {cure}"
        )
    for mechanism in mechanisms_of(settings, listener.name):
        if mechanism is SaslMechanism.OAUTHBEARER:
            check_url(str(settings.listener_value(listener.name, JWKS_URL, mechanism.value) or ""))
        _check_jaas(
            settings, listener.name, mechanism, f"{prefix}.{mechanism.value.lower()}.sasl.jaas.config"
        )


def _check_jaas(settings: Settings, listener: str, mechanism: SaslMechanism, name: str) -> None:
    line = settings.listener_value(listener, "sasl.jaas.config", mechanism.value)
    if line is None:
        if mechanism is SaslMechanism.PLAIN:
            raise InvalidSettings(
                f"{name} is missing: the users of PLAIN are in it, as "
                'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="PASSWORD";'
            )
        return
    try:
        login = parse_jaas(str(line))
    except ValueError as error:
        raise InvalidSettings(f"{name}: {error}; expected `...{MODULES[mechanism]} required ...;`") from None
    if login.module != MODULES[mechanism]:
        raise InvalidSettings(f"{name} names {login.module}; {mechanism.value} needs {MODULES[mechanism]}")
