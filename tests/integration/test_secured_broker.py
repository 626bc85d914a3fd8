"""Our broker with a `server.properties` written for Apache Kafka, and everybody's clients over TLS and SASL."""

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from kafka import KafkaConsumer, KafkaProducer
from typer.testing import CliRunner

from headrace import Admin, Broker, Producer, Queue, ShareConsumer
from headrace.broker.security.users import parse_new_user
from headrace.broker.settings import read_properties
from headrace.cli.app import app
from headrace.client.admin import Acl, AclOperation, AclPatternType, AclPermission, AclResourceType
from headrace.client.errors import AuthorizationError
from headrace.wire.enums import OffsetSpec
from tests.unit.broker.security.certificates import TestAuthority

PASSWORD = "a secret=with signs"
PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9099
listeners=INTERNAL://localhost:0,CLIENTS://localhost:0,CONTROLLER://localhost:9099
advertised.listeners=INTERNAL://localhost:0,CLIENTS://localhost:0
controller.listener.names=CONTROLLER
inter.broker.listener.name=INTERNAL
listener.security.protocol.map=CONTROLLER:PLAINTEXT,INTERNAL:SASL_PLAINTEXT,CLIENTS:SASL_SSL
sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.internal.sasl.enabled.mechanisms=PLAIN
listener.name.internal.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
    username="admin" password="admin secret" \\
    user_admin="admin secret" user_alice="alice secret";
listener.name.clients.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
ssl.truststore.type=PEM
ssl.truststore.location={ca}
ssl.client.auth=required
num.network.threads=3
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secured")


@pytest.fixture(scope="module")
def broker(folder: Path) -> Iterator[Broker]:
    authority = TestAuthority(folder)
    file = folder / "server.properties"
    file.write_text(PROPERTIES.format(keystore=authority.keystore(), ca=authority.ca))
    settings = read_properties(file)
    users = [parse_new_user(f"SCRAM-SHA-512=[name=alice,password={PASSWORD}]")]
    with Broker(data_dir=folder / "data", settings=settings, users=users) as running:
        yield running


@pytest.fixture
def login(broker: Broker, folder: Path) -> dict[str, str]:
    """Java's names, which are ours and, for the most part, librdkafka's."""
    return {
        "bootstrap.servers": broker.address_of("CLIENTS"),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
        "ssl.truststore.location": str(folder / "ca.pem"),
        "ssl.truststore.type": "PEM",
    }


@pytest.fixture
def command_config(login: dict[str, str], tmp_path: Path) -> str:
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in login.items()))
    return str(path)


def run(*arguments: str, stdin: str | None = None, status: int = 0) -> str:
    result = CliRunner().invoke(app, arguments, input=stdin)
    assert result.exit_code == status, result.output
    return result.stdout if status == 0 else result.stderr


def test_librdkafka(login: dict[str, str], unique: str) -> None:
    settings = {name: value for name, value in login.items() if not name.startswith("ssl.truststore")}
    settings["ssl.ca.location"] = login["ssl.truststore.location"]
    producer = ConfluentProducer(settings)
    producer.produce(unique, b"through")
    assert producer.flush(30) == 0
    consumer = ConfluentConsumer({**settings, "group.id": unique, "auto.offset.reset": "earliest"})
    consumer.subscribe([unique])
    record = consumer.poll(60)
    assert record is not None
    assert (record.error(), record.value()) == (None, b"through")
    consumer.close()


def test_kafka_python(login: dict[str, str], unique: str) -> None:
    settings = {
        "bootstrap_servers": login["bootstrap.servers"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": PASSWORD,
        "ssl_cafile": login["ssl.truststore.location"],
    }
    producer = KafkaProducer(**settings)
    producer.send(unique, b"through").get(60)
    producer.close()
    consumer = KafkaConsumer(unique, group_id=unique, auto_offset_reset="earliest", **settings)
    assert next(consumer).value == b"through"
    consumer.close()


def test_aiokafka(login: dict[str, str], unique: str) -> None:
    async def talk() -> bytes:
        settings = {
            "bootstrap_servers": login["bootstrap.servers"],
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": "alice",
            "sasl_plain_password": PASSWORD,
            "ssl_context": ssl.create_default_context(cafile=login["ssl.truststore.location"]),
        }
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait(unique, b"through")
        async with AIOKafkaConsumer(unique, auto_offset_reset="earliest", **settings) as consumer:
            record = await consumer.getone()
        value: bytes = record.value
        return value

    assert asyncio.run(talk()) == b"through"


def test_a_plain_login_of_the_jaas_line(broker: Broker, unique: str) -> None:
    line = (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="alice secret";'
    )
    settings = {
        "bootstrap.servers": broker.address_of("INTERNAL"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": line,
    }
    with Admin(settings) as admin:
        admin.create_topic(unique)


def test_the_worker(login: dict[str, str], unique: str) -> None:
    servers, *_ = login.values()
    queue = Queue(servers, group_id=unique, settings=login)
    done = []

    @queue.task(unique)
    def work(number: int) -> None:
        done.append(number)
        queue.stop()

    work.send(1)
    queue.run()
    assert done == [1]


def test_the_share_consumer(login: dict[str, str], unique: str) -> None:
    with Admin(login) as admin:
        admin.create_topic(unique)
        admin.set_group_config(unique, {"share.auto.offset.reset": "earliest"})
    with Producer(login) as producer:
        producer.send(unique, b"through")
    with ShareConsumer(login, group_id=unique) as consumer:
        consumer.subscribe([unique])
        deliveries = list(consumer.poll(60))
        assert [delivery.value for delivery in deliveries] == [b"through"]


def test_the_command_line_and_its_users(command_config: str, unique: str) -> None:
    how = ("--command-config", command_config)
    run("topic", "create", unique, *how)
    assert unique in run("topic", "list", *how)
    assert "can log in" in run("user", "add", unique, "-m", "SCRAM-SHA-256", *how, stdin="secret\n")
    listed = run("user", "list", *how)
    assert [unique, "SCRAM-SHA-256", "4096"] in [line.split() for line in listed.splitlines()]
    new = (
        "-X",
        f"sasl.username={unique}",
        "-X",
        "sasl.password=secret",
        "-X",
        "sasl.mechanism=SCRAM-SHA-256",
    )
    assert unique in run("topic", "list", *how, *new)
    run("user", "delete", unique, "--yes", *how)
    assert unique not in run("user", "list", *how)
    assert "Check sasl.username" in run("topic", "list", *how, *new, status=1)
    assert "does not exist" in run("user", "delete", unique, "--yes", *how, status=1)


def test_users_outlive_the_broker(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path)
    settings = {
        "listeners": "SASL_SSL://localhost:0",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "ssl.keystore.location": authority.keystore(file="again.pem"),
    }
    login = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "bob",
        "sasl.password": "first",
        "ssl.truststore.location": str(authority.ca),
    }
    with (
        Broker(data_dir=tmp_path / "again", settings=settings, users={"bob": "first"}) as broker,
        Admin({**login, "bootstrap.servers": broker.bootstrap_servers}) as admin,
    ):
        admin.set_user_password("bob", "second")
    with (
        Broker(data_dir=tmp_path / "again", settings=settings, users={"bob": "first"}) as broker,
        Admin({**login, "sasl.password": "second", "bootstrap.servers": broker.bootstrap_servers}) as admin,
    ):
        assert [user.name for user in admin.list_users()] == ["bob"]


ACCESS = {
    "listeners": "SASL_PLAINTEXT://localhost:0",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}


def allow(user: str, kind: AclResourceType, name: str, *operations: AclOperation) -> list[Acl]:
    """On everything whose name begins with `name`."""
    prefixed, allowed = AclPatternType.PREFIXED, AclPermission.ALLOW
    return [Acl(kind, name, prefixed, f"User:{user}", "*", each, allowed) for each in operations]


def test_scheduled_records_reach_only_topics_that_the_worker_may_write_to(
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic, group, transaction = (
        AclResourceType.TOPIC,
        AclResourceType.GROUP,
        AclResourceType.TRANSACTIONAL_ID,
    )
    read, write, create, delete = (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
    )
    with Broker(settings=ACCESS, users={"admin": "a", "worker": "w", "sender": "s"}) as running:

        def login(name: str) -> dict[str, str]:
            return {
                "bootstrap.servers": running.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": name,
                "sasl.password": name[0],
            }

        with Admin(login("admin")) as admin:
            admin.create_topic("emails")
            admin.create_topic("payments")
            admin.set_group_config("mailers", {"share.auto.offset.reset": "earliest"})
            admin.create_acls(
                [
                    *allow("worker", topic, "mailers.later", read, write, create, delete),
                    *allow("worker", topic, "emails", read, write),
                    *allow("worker", group, "mailers", read),
                    *allow("worker", transaction, "mailers.later", write),
                    *allow("sender", topic, "mailers.later", write, create),
                ]
            )
        done = []
        worker = Queue(running.bootstrap_servers, group_id="mailers", settings=login("worker"))

        @worker.task("emails")
        def send(name: str) -> None:
            done.append(name)
            worker.stop()

        with Queue(running.bootstrap_servers, group_id="mailers", settings=login("sender")) as sender:
            sender.send("payments", "to mallory", delay=0.0)
            sender.send("emails", "ada", delay=0.5)
            canceled = sender.schedule("emails", "bob", delay=1.0)
            assert sender.cancel(canceled.id), "it may not read whether the ID is known"
        worker.run()
        assert done == ["ada"]
        with Admin(login("admin")) as admin:
            ends = admin.list_offsets({("payments", 0): OffsetSpec.LATEST})
            assert ends["payments", 0].offset == 0
    assert "could not be sent to topic payments, retrying in 300 s" in caplog.text


def test_logins_and_access_control_together(tmp_path: Path, unique: str) -> None:
    file = tmp_path / "server.properties"
    file.write_text(
        "listeners=SASL_PLAINTEXT://localhost:0\n"
        "sasl.enabled.mechanisms=PLAIN\n"
        "listener.name.sasl_plaintext.plain.sasl.jaas.config=\\\n"
        "  org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        '  user_admin="a" user_bob="b";\n'
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
        "super.users=User:admin\n"
    )
    with Broker(settings=read_properties(file)) as running:

        def login(name: str, password: str) -> Admin:
            return Admin(
                bootstrap_servers=running.bootstrap_servers,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="PLAIN",
                sasl_username=name,
                sasl_password=password,
            )

        with login("admin", "a") as admin, login("bob", "b") as bob:
            admin.create_topic(unique)
            assert [topic.name for topic in admin.list_topics()] == [unique]
            assert bob.list_topics() == []
            with pytest.raises(AuthorizationError):
                bob.create_topic(f"{unique}-2")
            with pytest.raises(AuthorizationError):
                bob.set_user_password("bob", "more")
