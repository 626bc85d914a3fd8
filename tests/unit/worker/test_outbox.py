"""Our client's settings, in aiokafka's words."""

from headrace.client.settings import ClientSettings
from headrace.worker.outbox import producer_options


def test_records_are_acknowledged_by_all_and_written_once():
    options = producer_options(ClientSettings.parse(bootstrap_servers="one:9092,two:9093", client_id="mail"))

    assert options["bootstrap_servers"] == ["one:9092", "two:9093"]
    assert options["client_id"] == "mail"
    assert options["enable_idempotence"] is True
    assert options["acks"] == "all"


def test_a_login_is_passed_on():
    settings = ClientSettings.parse(
        {
            "bootstrap.servers": "one:9092",
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "ada",
            "sasl.password": "secret",
        }
    )

    options = producer_options(settings)

    assert options["security_protocol"] == "SASL_SSL"
    assert options["sasl_mechanism"] == "SCRAM-SHA-512"
    assert (options["sasl_plain_username"], options["sasl_plain_password"]) == ("ada", "secret")
    assert options["ssl_context"] is not None


def test_plain_text_has_neither_tls_nor_login():
    options = producer_options(ClientSettings.parse(bootstrap_servers="one:9092"))

    assert "ssl_context" not in options
    assert "sasl_mechanism" not in options
