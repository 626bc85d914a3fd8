"""What may be set, how it may be spelled, and what bad values are told."""

import os
import platform
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from headrace.base.settings import ConfigType
from headrace.base.tables import rows
from headrace.client.errors import ConfigError
from headrace.client.identity import with_process_name
from headrace.client.settings import (
    AcknowledgementMode,
    Address,
    ClientSettings,
    SaslMechanism,
    SecurityProtocol,
    ShareSettings,
)
from headrace.client.settings_refused import NO_EFFECT, REFUSED, REFUSED_FOR_SHARE_GROUPS
from headrace.share.modes import AcquireMode

NEEDED = {"bootstrap.servers": "localhost:9092", "group.id": "g"}
NUMBERS = [row for row in rows(ShareSettings).values() if row.type is ConfigType.LONG]
JAAS = 'org.apache.kafka.common.security.{0}LoginModule required username="al\\"ice" password="a b;c";'


def parse(given: dict[str, Any] | None = None, /, **keywords: Any) -> ShareSettings:
    return ShareSettings.parse({**NEEDED, **(given or {})}, **keywords)


def refused(given: dict[str, Any] | None = None, /, **keywords: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(given, **keywords)
    return str(caught.value)


def test_kafkas_names_keywords_and_text_mean_the_same() -> None:
    expected = parse({"max.poll.records": 7, "check.crcs": False})
    assert parse(max_poll_records=7, check_crcs=False) == expected
    assert parse({"max.poll.records": "7", "check.crcs": "false"}) == expected
    assert parse({"max_poll_records": " 7 ", "check_crcs": "FALSE"}) == expected


def test_the_defaults_are_javas() -> None:
    settings = parse()
    assert settings.request_timeout_ms == 30_000
    assert settings.default_api_timeout_ms == 60_000
    assert (settings.retry_backoff_ms, settings.retry_backoff_max_ms) == (100, 1_000)
    assert (settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms) == (50, 1_000)
    assert settings.metadata_max_age_ms == 300_000
    assert settings.connections_max_idle_ms == 540_000
    assert settings.socket_connection_setup_timeout_ms == 10_000
    assert settings.share_acknowledgement_mode is AcknowledgementMode.IMPLICIT
    assert settings.share_acquire_mode is AcquireMode.BATCH_OPTIMIZED
    assert (settings.max_poll_records, settings.max_poll_interval_ms) == (500, 300_000)
    assert (settings.fetch_min_bytes, settings.fetch_max_bytes, settings.fetch_max_wait_ms) == (
        1,
        52_428_800,
        500,
    )
    assert settings.check_crcs
    assert not settings.auto_renew


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        parse().group_id = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("alias", "value", "name"),
    [
        ("metadata.broker.list", "localhost:9092", "bootstrap_servers"),
        ("socket.timeout.ms", 5, "request_timeout_ms"),
        ("topic.metadata.refresh.interval.ms", 5, "metadata_max_age_ms"),
        ("fetch.wait.max.ms", 5, "fetch_max_wait_ms"),
        ("sasl.mechanisms", "PLAIN", "sasl_mechanism"),
        ("ssl.ca.location", "ca.pem", "ssl_truststore_location"),
        ("ssl.ca.pem", "text", "ssl_truststore_certificates"),
        ("ssl.certificate.pem", "text", "ssl_keystore_certificate_chain"),
        ("ssl.key.pem", "text", "ssl_keystore_key"),
    ],
)
def test_librdkafkas_names_are_known(alias: str, value: Any, name: str) -> None:
    assert getattr(parse({alias: value}), name) == getattr(parse({name.replace("_", "."): value}), name)


def test_one_setting_under_two_names_is_refused_unless_they_agree() -> None:
    assert refused({"socket.timeout.ms": 5}, request_timeout_ms=6) == (
        "request.timeout.ms is given twice, with two values; keep one of them"
    )
    assert parse({"socket.timeout.ms": 5}, request_timeout_ms=5).request_timeout_ms == 5


def test_none_is_not_given() -> None:
    assert parse(client_rack=None, max_poll_records=None) == parse()


@pytest.mark.parametrize("each", NUMBERS, ids=lambda each: each.name)
def test_a_number_is_held_to_its_range(each: Any) -> None:
    name, rule = each.name, each
    for good in (rule.minimum, rule.maximum):
        given = {name: good}
        if name in ("max.unacknowledged", "share.acquire.mode"):
            given["share.acknowledgement.mode"] = "explicit"
        parse(given)
    for bad in (rule.minimum - 1, rule.maximum + 1):
        assert (
            refused({name: bad})
            == f"{name}={bad}; allowed are whole numbers from {rule.minimum} to {rule.maximum}"
        )
    for bad in ("ten", "1.5", 1.5, True, [1]):
        message = refused({name: bad})
        assert message.startswith(f"{name}={bad!r}; allowed are whole numbers from ")


def test_a_yes_or_no_is_held_to_its_words() -> None:
    assert refused(check_crcs="maybe") == "check.crcs='maybe'; allowed are true and false"


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("share.acknowledgement.mode", "implicit, explicit"),
        ("share.acquire.mode", "batch_optimized, record_limit"),
        ("security.protocol", "PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("sasl.mechanism", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"),
    ],
)
def test_a_choice_is_held_to_its_words(name: str, allowed: str) -> None:
    assert refused({name: "other"}) == f"{name}='other'; allowed are {allowed}"


@pytest.mark.parametrize(
    ("mechanism", "cure"),
    [
        ("AWS_MSK_IAM", 'of Amazon\'s signer ("Tokens" in docs/reference/client-settings.md has it)'),
        ("gssapi", "Kerberos is not supported; connect to a listener that has one of these"),
    ],
)
def test_a_mechanism_of_other_clients_is_refused_with_what_to_do_instead(mechanism: str, cure: str) -> None:
    message = refused(sasl_mechanism=mechanism)
    assert message.startswith(f"sasl.mechanism={mechanism!r}; allowed are PLAIN, ")
    assert message.endswith(cure)


def test_choices_are_enums_and_take_any_case() -> None:
    assert parse(share_acquire_mode="RECORD_LIMIT").share_acquire_mode is AcquireMode.RECORD_LIMIT
    assert parse(share_acquire_mode=AcquireMode.RECORD_LIMIT).share_acquire_mode is AcquireMode.RECORD_LIMIT
    assert parse(sasl_mechanism="scram-sha-512").sasl_mechanism is SaslMechanism.SCRAM_SHA_512


@pytest.mark.parametrize(
    ("given", "addresses"),
    [
        ("a:1", ["a:1"]),
        ("a:1, b:2,a:1", ["a:1", "b:2"]),
        (["a:1", "b:2"], ["a:1", "b:2"]),
        ("PLAINTEXT://a:1", ["a:1"]),
        ("[::1]:9092", ["[::1]:9092"]),
    ],
)
def test_addresses_come_in_several_spellings(given: Any, addresses: list[str]) -> None:
    settings = ClientSettings.parse(bootstrap_servers=given)
    assert [str(address) for address in settings.bootstrap_servers] == addresses


@pytest.mark.parametrize("bad", ["localhost", "localhost:", ":9092", "a:0", "a:65536", "a:x", "a:1,b", "a:²"])
def test_an_address_without_host_or_port_is_refused(bad: str) -> None:
    message = refused({"bootstrap.servers": bad})
    assert message.startswith("bootstrap.servers: ")
    assert "host:port" in message


@pytest.mark.parametrize("bad", ["", " , ", [], 9092])
def test_no_address_at_all_is_refused(bad: Any) -> None:
    assert refused({"bootstrap.servers": bad}).startswith(f"bootstrap.servers={bad!r}")


def test_an_address_in_place_of_the_settings_is_refused_with_the_right_spelling() -> None:
    wanted = r"must be a mapping .*, got 'localhost:9092'; .* write bootstrap_servers='host:9092'"
    with pytest.raises(ConfigError, match=wanted):
        ClientSettings.parse("localhost:9092")  # type: ignore[arg-type]


def test_what_is_needed_is_asked_for() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is missing; set it to host:port"):
        ClientSettings.parse()
    with pytest.raises(ConfigError, match=r"group\.id is missing; set it to the name"):
        ShareSettings.parse(bootstrap_servers="a:1")


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("max.pol.records", "max.poll.records"),
        ("bootstrap.server", "bootstrap.servers"),
        ("ssl_truststore_locaton", "ssl.truststore.location"),
        ("socket.timeouts.ms", "socket.timeout.ms"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest_one(wrong: str, near: str) -> None:
    assert refused({wrong: 1}) == f"unknown setting {wrong.replace('_', '.')}; did you mean {near}?"


def test_an_unknown_name_like_no_other_points_to_the_list() -> None:
    assert refused(zzz=1) == "unknown setting zzz; docs/reference/client-settings.md lists them all"


@pytest.mark.parametrize("name", sorted(REFUSED_FOR_SHARE_GROUPS))
def test_what_java_refuses_for_share_groups_is_refused_with_a_reason(name: str) -> None:
    message = refused({name: "x"})
    assert message.startswith(f"{name}='x' cannot be set when using a share group: ")


def test_the_settings_that_java_refuses_are_all_there() -> None:
    java = """auto.offset.reset enable.auto.commit group.instance.id isolation.level partition.assignment.strategy
        interceptor.classes session.timeout.ms heartbeat.interval.ms group.protocol group.remote.assignor"""
    assert set(java.split()) <= set(REFUSED_FOR_SHARE_GROUPS)


def test_where_a_group_starts_is_set_on_the_group() -> None:
    message = refused(auto_offset_reset="earliest")
    assert "Admin.set_group_config(group, {'share.auto.offset.reset': …})" in message
    assert "`headrace group config set GROUP share.auto.offset.reset=…`" in message


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_other_clients_have_is_refused_with_what_to_use_here_and_without_its_value(name: str) -> None:
    message = refused({name: "hunter2"})
    assert message.startswith(f"{name} cannot be used: ")
    assert "hunter2" not in message


@pytest.mark.parametrize("name", sorted(NO_EFFECT))
def test_what_has_no_effect_is_passed_over(name: str) -> None:
    assert parse({name: "x"}) == parse()


def test_a_client_that_joins_no_group_passes_over_a_share_consumers_settings() -> None:
    settings = ClientSettings.parse({**NEEDED, "max.poll.records": 5})
    assert settings.bootstrap_servers == (Address("localhost", 9092),)


def test_a_first_backoff_above_the_longest_is_the_longest() -> None:
    settings = parse(retry_backoff_ms=500, retry_backoff_max_ms=200, reconnect_backoff_ms=2_000)
    assert settings.retry_backoff_ms == 200
    assert settings.reconnect_backoff_ms == 1_000


@pytest.mark.parametrize("store", ["ssl.truststore.type", "ssl.keystore.type"])
def test_a_store_is_of_a_type_that_is_read(store: str) -> None:
    assert refused({store: "BKS"}) == f"{store}='BKS'; allowed are PEM, PKCS12, JKS"
    assert parse({store: "jks"})
    assert parse({store: "pem"})


def test_the_check_of_host_names_is_on_or_off() -> None:
    assert parse(ssl_endpoint_identification_algorithm="none")
    assert parse(ssl_endpoint_identification_algorithm="")
    assert "allowed are https" in refused(ssl_endpoint_identification_algorithm="ldaps")


@pytest.mark.parametrize("missing", ["sasl.username", "sasl.password"])
def test_a_login_needs_name_and_password(missing: str) -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.username": "alice", "sasl.password": "secret"}
    del given[missing]
    assert refused(given).startswith(f"{missing} is missing; security.protocol=SASL_SSL needs")


def test_name_and_password_are_read_from_javas_jaas_config() -> None:
    for mechanism, module in (("PLAIN", "plain.Plain"), ("SCRAM-SHA-512", "scram.Scram")):
        settings = parse(
            security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism, sasl_jaas_config=JAAS.format(module)
        )
        assert settings.security_protocol is SecurityProtocol.SASL_PLAINTEXT
        assert (settings.sasl_username, settings.sasl_password) == ('al"ice', "a b;c")


@pytest.mark.parametrize(
    ("jaas", "words"),
    [
        ("username=alice password=secret", "cannot be read; expected"),
        (JAAS.format("scram.Scram"), "does not fit sasl.mechanism=PLAIN; expected"),
        ("x.PlainLoginModule required username=alice;", "lacks username or password; expected"),
    ],
)
def test_a_jaas_config_that_cannot_be_used_is_told_what_is_expected(jaas: str, words: str) -> None:
    message = refused(security_protocol="SASL_SSL", sasl_jaas_config=jaas)
    assert words in message
    assert "plain.PlainLoginModule required username=" in message
    assert "secret" not in message


def test_a_jaas_config_beside_another_password_is_refused() -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.jaas.config": JAAS.format("plain.Plain")}
    message = refused({**given, "sasl.password": "other"})
    assert message == "sasl.password differs from sasl.jaas.config; keep one of them"


def test_secrets_are_not_shown() -> None:
    settings = parse(
        security_protocol="SASL_SSL",
        sasl_username="alice",
        sasl_password="hunter2",
        ssl_key_password="hunter2",
    )
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in refused(sasl_password=b"hunter2")


def test_holding_records_over_polls_needs_explicit_acknowledgement() -> None:
    assert "needs share.acknowledgement.mode=explicit" in refused(max_unacknowledged=5)
    assert "needs share.acknowledgement.mode=explicit" in refused(auto_renew=True)
    settings = parse(max_unacknowledged=5, auto_renew="true", share_acknowledgement_mode="explicit")
    assert settings.auto_renew
    assert settings.max_unacknowledged == 5


def test_every_setting_says_what_it_does() -> None:
    for each in rows(ShareSettings).values():
        assert each.doc.rstrip("`").endswith((".", ";")), each.name


BEARER = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
ENDPOINT = {**BEARER, "sasl.oauthbearer.token.endpoint.url": "https://login.example/token"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (BEARER, "needs a token: set either sasl.oauthbearer.token.provider"),
        ({**ENDPOINT, "sasl.oauthbearer.token.provider": "m:f"}, "set either"),
        ({**BEARER, "sasl.oauthbearer.token.provider": "m.f"}, "'m.f'; expected module:function"),
        ({**BEARER, "sasl.oauthbearer.token.endpoint.url": "http://login.example"}, "in the clear by http"),
        (ENDPOINT, "client.credentials.client.id is missing"),
        ({**ENDPOINT, "sasl.oauthbearer.client.id": "me"}, "client.credentials.client.secret is missing"),
        ({**BEARER, "sasl.jaas.config": "x"}, "sasl.jaas.config is not read for OAUTHBEARER"),
        (
            {**BEARER, "sasl.oauthbearer.token.provider": "m:f", "sasl.oauthbearer.extensions": "lkc"},
            "expected name=value",
        ),
    ],
)
def test_a_token_needs_one_place_to_come_from(given: dict[str, str], said: str) -> None:
    assert said in refused(given)


def test_tokens_come_from_a_function_a_file_or_an_endpoint() -> None:
    assert parse({**BEARER, "sasl.oauthbearer.token.provider": "company.auth:Tokens.fresh"})
    assert parse({**BEARER, "sasl.oauthbearer.token.endpoint.url": "file:///var/run/token"})
    settings = parse(
        {**ENDPOINT, "sasl.oauthbearer.client.id": "me", "sasl.oauthbearer.client.secret": "hush"}
    )
    assert "hush" not in repr(settings)


def test_consumers_have_a_client_id_that_tells_host_and_process_unless_one_was_chosen() -> None:
    given = {"bootstrap.servers": "localhost:9092", "group.id": "g"}
    own = with_process_name(ShareSettings.parse(given)).client_id
    assert own == f"headrace@{platform.node()}:{os.getpid()}"
    assert with_process_name(ShareSettings.parse(given, client_id="mine")).client_id == "mine"
