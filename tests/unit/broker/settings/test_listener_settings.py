"""Settings of single listeners, and of single mechanisms of a listener."""

import pytest

from headrace.broker.settings import InvalidSettings, Settings
from headrace.broker.settings.security_table import parse_overrides
from headrace.broker.settings.table import broker_setting
from headrace.log.metadata import MetadataStore

JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"


def test_a_listener_has_its_own_value_and_else_the_brokers() -> None:
    settings = Settings({"ssl.client.auth": "requested", "listener.name.inner.ssl.client.auth": "required"})
    assert settings.warnings == []
    assert settings.listener_value("INNER", "ssl.client.auth") == "required"
    assert settings.listener_value("OUTER", "ssl.client.auth") == "requested"


def test_a_mechanism_of_a_listener_has_its_own_value() -> None:
    settings = Settings({JAAS: "secret", "listener.name.sasl_plaintext.connections.max.reauth.ms": 5})
    assert settings.listener_value("SASL_PLAINTEXT", "sasl.jaas.config", "PLAIN") == "secret"
    assert settings.listener_value("SASL_PLAINTEXT", "sasl.jaas.config", "SCRAM-SHA-256") is None
    assert settings.listener_value("SASL_PLAINTEXT", "connections.max.reauth.ms", "PLAIN") == 5


@pytest.mark.parametrize(
    "name", ["listener.name.a.num.partitions", "listener.name.A.ssl.client.auth", "listener.name."]
)
def test_other_names_behind_the_prefix_are_unknown(name: str) -> None:
    assert broker_setting(name) is None


def test_a_listeners_setting_is_altered_on_the_running_broker_and_kept() -> None:
    store = MetadataStore()
    settings = Settings()
    settings.attach(store)
    settings.set_dynamic("listener.name.a.ssl.keystore.location", "new.pem")
    assert settings.listener_value("A", "ssl.keystore.location") == "new.pem"
    again = Settings()
    again.attach(store)
    assert again.listener_value("A", "ssl.keystore.location") == "new.pem"
    again.set_dynamic("listener.name.a.ssl.keystore.location", None)
    assert again.listener_value("A", "ssl.keystore.location") is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sasl.enabled.mechanisms", "PLAIN,ANONYMOUS"),
        ("principal.builder.class", "com.example.Mine"),
        ("ssl.engine.factory.class", "com.example.Mine"),
        ("listener.name.a.plain.sasl.server.callback.handler.class", "com.example.Mine"),
        ("sasl.oauthbearer.jwt.validator.class", "com.example.Mine"),
        ("listener.name.a.oauthbearer.sasl.oauthbearer.jwt.validator.class", "com.example.Mine"),
        ("ssl.enabled.protocols", "TLSv1.1"),
        ("ssl.keystore.type", "BCFKS"),
        ("max.connections.per.ip.overrides", "127.0.0.1:many"),
        ("max.connections.per.ip.overrides", "no..such.host:5"),
    ],
)
def test_what_cannot_be_honored_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidSettings, match=name):
        Settings({name: value})


def test_a_secret_is_not_in_the_text_of_a_refusal() -> None:
    with pytest.raises(InvalidSettings) as refused:
        Settings({"ssl.key.password": "geheim", "num.partitions": "none"})
    assert "geheim" not in str(refused.value)


def test_limits_of_single_hosts_are_found_by_address_however_the_host_is_written() -> None:
    limits = parse_overrides("localhost:5, [0:0:0:0:0:0:0:2]:7,10.0.0.1:9")
    assert {each: limits[each] for each in ("127.0.0.1", "::2", "10.0.0.1")} == {
        "127.0.0.1": 5,
        "::2": 7,
        "10.0.0.1": 9,
    }
