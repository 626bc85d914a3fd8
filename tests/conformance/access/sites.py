"""Starts the brokers of the access tests. The plain listener is a super user's; the other knows users by password."""

from contextlib import ExitStack

from headrace import Broker
from headrace.testing import ApacheKafka
from tests.conformance.access.site import STANDARD, USERS, Site
from tests.conformance.conftest import SETTINGS
from tests.conformance.steps import wait_until_coordinators_are_ready
from tests.conformance.wire_client import WireClient

PASSWORD = "secret"
_USERS = " ".join(f'user_{user}="{PASSWORD}"' for user in (Site.spare, *USERS.values()))
ACCESS = {
    **SETTINGS,
    "authorizer.class.name": STANDARD,
    "super.users": "User:ANONYMOUS",
    "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl.plain.sasl.jaas.config": (
        f"org.apache.kafka.common.security.plain.PlainLoginModule required {_USERS};"
    ),
}
OURS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
}


def headrace_site(stack: ExitStack) -> Site:
    return _site(stack, stack.enter_context(Broker(settings=ACCESS | OURS)))


def apache_site(stack: ExitStack) -> Site:
    kafka = stack.enter_context(ApacheKafka(settings=ACCESS, listeners={"SASL": "SASL_PLAINTEXT"}))
    return _site(stack, kafka)


def _site(stack: ExitStack, broker: Broker | ApacheKafka) -> Site:
    admin = stack.enter_context(WireClient(broker.address_of("PLAINTEXT")))
    wait_until_coordinators_are_ready(admin)
    return Site(
        broker.address_of("PLAINTEXT"),
        admin,
        lambda: WireClient(broker.address_of("PLAINTEXT")),
        lambda user: logged_in(broker.address_of("SASL"), user),
    )


def logged_in(servers: str, user: str) -> WireClient:
    wire = WireClient(servers)
    wire.ask("sasl_handshake", 1, mechanism="PLAIN")
    answer = wire.ask("sasl_authenticate", 2, auth_bytes=f"\0{user}\0{PASSWORD}".encode())
    assert answer.error_code == 0, answer
    return wire
