"""The files under deploy/ are what Kubernetes, Strimzi, Kafka and Spark take them for, as far as one machine can tell.

Checked: Kubernetes' own resources against its published schemas; Strimzi's against `strimzi.py`, KEDA's against
`keda.py`; what KEDA would read, by a real dashboard; Kafka's settings by a
real three-node Apache Kafka that is started with them; the commands of the containers by running them here, Spark's
as a standalone cluster of real processes. Not checked: a real Kubernetes cluster, and the building of the image.
"""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from confluent_kafka import Producer

from headrace import Admin, Broker, ShareConsumer
from headrace.broker.settings import BY_NAME, Scope
from headrace.client.admin import LATEST
from headrace.client.settings import ClientSettings
from headrace.testing import ApacheKafka
from headrace.testing.java import find_java
from headrace.web.embedded import EmbeddedView
from headrace.web.options import WebOptions
from headrace.web.server import WebServer
from tests.conformance.steps import wait_for
from tests.docs.keda import keda_schema_of
from tests.docs.pages import REPOSITORY
from tests.docs.strimzi import schema_of

DEPLOY = REPOSITORY / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
KUBERNETES = "1.33.0"
WAIT_S = 120
Resource = dict[str, Any]


def resources(path: Path) -> list[Resource]:
    return list(yaml.safe_load_all(path.read_text()))


ALL = [
    pytest.param(one, id=f"{path.name}:{one['kind']}:{one['metadata']['name']}")
    for path in MANIFESTS
    for one in resources(path)
]


def named(file: str, kind: str, name: str) -> Resource:
    (found,) = (
        one
        for one in resources(DEPLOY / "kubernetes" / file)
        if one["kind"] == kind and one["metadata"]["name"] == name
    )
    return found


def container(workload: Resource) -> Resource:
    (found,) = workload["spec"]["template"]["spec"]["containers"]
    return found


def validate(resource: Resource) -> None:
    import jsonschema
    import kubernetes_validate

    if resource["apiVersion"].startswith("kafka.strimzi.io/"):
        jsonschema.validate(resource, schema_of(resource["kind"]))
    elif resource["apiVersion"].startswith("keda.sh/"):
        jsonschema.validate(resource, keda_schema_of(resource["kind"]))
    else:
        kubernetes_validate.validate(resource, KUBERNETES, strict=True)


@pytest.mark.parametrize("resource", ALL)
@pytest.mark.needs_docs
def test_a_resource_is_valid(resource: Resource) -> None:
    validate(resource)


@pytest.mark.parametrize(
    ("file", "kind", "name"),
    [
        ("workers.yaml", "Deployment", "mailers"),
        ("kafka.yaml", "Kafka", "queue"),
        ("topics.yaml", "KafkaTopic", "orders"),
        ("scaling.yaml", "ScaledObject", "mailers"),
    ],
)
@pytest.mark.needs_docs
def test_a_field_that_does_not_exist_is_refused(file: str, kind: str, name: str) -> None:
    resource = named(file, kind, name)
    resource["spec"]["replica"] = 3
    with pytest.raises(Exception, match="replica"):
        validate(resource)


def test_every_strimzi_resource_belongs_to_the_cluster() -> None:
    for file in ("kafka.yaml", "topics.yaml"):
        for one in resources(DEPLOY / "kubernetes" / file):
            name = one["metadata"].get("labels", {}).get("strimzi.io/cluster", one["metadata"]["name"])
            assert name == "queue"


def test_what_talks_to_kafka_talks_to_strimzis_service() -> None:
    text = "\n".join(path.read_text() for path in MANIFESTS)
    assert set(re.findall(r"[\w-]+-bootstrap:\d+", text)) == {"queue-kafka-bootstrap:9092"}


def test_keda_scales_the_workers_and_logs_in_to_the_dashboard() -> None:
    scaled = named("scaling.yaml", "ScaledObject", "mailers")["spec"]
    workers = named("workers.yaml", "Deployment", scaled["scaleTargetRef"]["name"])
    assert scaled["fallback"]["replicas"] == workers["spec"]["replicas"]
    (trigger,) = scaled["triggers"]
    (secret,) = named("scaling.yaml", "TriggerAuthentication", trigger["authenticationRef"]["name"])["spec"][
        "secretTargetRef"
    ]
    dashboard = container(named("dashboard.yaml", "Deployment", "headrace-web"))
    (token,) = (one for one in dashboard["env"] if one["name"] == "HEADRACE_WEB_TOKEN")
    assert token["valueFrom"]["secretKeyRef"] == {"name": secret["name"], "key": secret["key"]}
    url = urlsplit(trigger["metadata"]["url"])
    asked = {name: value for name, (value,) in parse_qs(url.query).items()}
    assert (int(asked["min"]), int(asked["max"])) == (scaled["minReplicaCount"], scaled["maxReplicaCount"])
    service = named("dashboard.yaml", "Service", "headrace-web")
    assert (url.hostname, url.port) == (service["metadata"]["name"], service["spec"]["ports"][0]["port"])


def test_keda_reads_the_number_of_members_from_a_real_dashboard() -> None:
    trigger = named("scaling.yaml", "ScaledObject", "mailers")["spec"]["triggers"][0]["metadata"]
    url = urlsplit(trigger["url"])
    token = "0123456789abcdef"
    with ExitStack() as stack:
        broker = stack.enter_context(Broker())
        servers = broker.bootstrap_servers
        admin = stack.enter_context(Admin(bootstrap_servers=servers))
        admin.create_topic("emails", partitions=1)
        admin.set_group_config("mailers", {"share.auto.offset.reset": "earliest"})
        with ShareConsumer(bootstrap_servers=servers, group_id="mailers") as consumer:
            consumer.subscribe(["emails"])
            producer = Producer({"bootstrap.servers": servers})
            for _ in range(10):
                producer.produce("emails", b"x")
            assert producer.flush(30) == 0
            while not consumer.poll(1.0):
                pass
        options = WebOptions(token=token, sample_s=0.2)
        settings = ClientSettings.parse(bootstrap_servers=servers)
        web = stack.enter_context(WebServer(settings, options, EmbeddedView(broker)))
        request = urllib.request.Request(
            f"{web.url}{url.path}?{url.query}", headers={"Authorization": f"Bearer {token}"}
        )
        wait_for(lambda: answers(request))
        with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
            found = json.load(answer)
        assert found[trigger["valueLocation"]] == 1
        assert (found["members"], found["lag"]) == (0, 10)


def answers(request: urllib.request.Request) -> bool:
    try:
        with urllib.request.urlopen(request, timeout=WAIT_S):
            return True
    except urllib.error.HTTPError as error:
        if error.code not in (404, 503):  # nothing is sampled yet
            raise
        return False


def test_settings_of_topics_exist() -> None:
    for one in resources(DEPLOY / "kubernetes" / "topics.yaml"):
        assert set(one["spec"].get("config", {})) <= set(BY_NAME[Scope.TOPIC])


def kafka_config() -> dict[str, object]:
    config: dict[str, object] = named("kafka.yaml", "Kafka", "queue")["spec"]["kafka"]["config"]
    return config


def test_settings_of_the_cluster_are_kafkas_and_in_range() -> None:
    """By our table of Kafka's settings; only copies, of which we keep one, are other numbers there."""
    copies = re.compile(r"replica|\.isr$")
    ours = {name: value for name, value in kafka_config().items() if not copies.search(name)}
    Broker(settings=ours)
    assert set(kafka_config()) <= set(BY_NAME[Scope.BROKER])


@pytest.mark.needs_kafka
@pytest.mark.timeout(300)
def test_a_share_group_works_on_apache_kafka_with_the_manifests_settings() -> None:
    topic = named("topics.yaml", "KafkaTopic", "orders")["spec"]
    group = container(named("groups.yaml", "Job", "group-configs"))["args"]
    with ApacheKafka(nodes=3, settings=kafka_config()) as kafka:
        servers = kafka.bootstrap_servers
        subprocess.run(
            [sys.executable, "-m", *group],
            env={**os.environ, "HEADRACE_BOOTSTRAP_SERVER": servers},
            check=True,
        )
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topic(
                "orders",
                partitions=topic["partitions"],
                replication_factor=topic["replicas"],
                configs=topic["config"],
            )
            assert admin.group_config("orders-pipeline")["share.record.lock.duration.ms"].value == "60000"
        produce(servers, "orders", ["1", "2", "3"])
        with ShareConsumer(bootstrap_servers=servers, group_id="orders-pipeline") as consumer:
            consumer.subscribe(["orders"])
            got: list[bytes] = []
            while len(got) < 3:
                got += [one.value for one in consumer.poll(5.0)]
            assert set(consumer.commit_sync().values()) == {None}
    assert sorted(got) == [b"1", b"2", b"3"]


def produce(servers: str, topic: str, values: list[str]) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(WAIT_S) == 0


# The commands of the containers, run here


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path, "PYTHONUNBUFFERED": "1", **more}


@contextmanager
def running(command: list[str], until: str, *, cwd: Path, env: dict[str, str]) -> Iterator[str]:
    """Gives the line that says `until`, from either stream."""
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    seen: list[str] = []
    rest = threading.Thread(target=lambda: seen.extend(process.stdout or ()))
    try:
        for line in process.stdout:
            seen.append(line)
            if re.search(until, line):
                break
        else:
            raise AssertionError(f"{command} ended:\n{''.join(seen)}")
        rest.start()  # or the process would wait for somebody to read what it prints
        yield line
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if rest.is_alive():
            rest.join(30)
        process.stdout.close()


def test_workers_run_by_their_command(tmp_path: Path) -> None:
    command = container(named("workers.yaml", "Deployment", "mailers"))["args"]
    with Broker() as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("emails")
            admin.create_topic("emails.dead")
        produce(
            broker.bootstrap_servers, "emails", [json.dumps({"to": "ada@example.org", "subject": "Hello"})]
        )
        env = environment(HEADRACE_BOOTSTRAP_SERVER=broker.bootstrap_servers)
        with running(command, "sent", cwd=DEPLOY / "app", env=env) as line:
            assert line == "sent Hello to ada@example.org\n"


def test_the_dashboard_answers_its_probes_without_the_token() -> None:
    web = container(named("dashboard.yaml", "Deployment", "headrace-web"))
    assert "HEADRACE_WEB_TOKEN" in {one["name"] for one in web["env"]}
    command = [word.replace("0.0.0.0:8080", "0.0.0.0:0") for word in web["args"]]
    with Broker() as broker:
        env = environment(HEADRACE_BOOTSTRAP_SERVER=broker.bootstrap_servers, HEADRACE_WEB_TOKEN="s" * 24)
        with running(command, "dashboard on", cwd=REPOSITORY, env=env) as line:
            port = re.search(r":(\d+)", line)
            assert port is not None, line
            for probe in ("livenessProbe", "readinessProbe"):
                address = f"http://127.0.0.1:{port[1]}{web[probe]['httpGet']['path']}"
                assert urllib.request.urlopen(address, timeout=WAIT_S).status == 200


@pytest.mark.needs_spark
@pytest.mark.timeout(480)
def test_spark_runs_by_its_commands_as_a_cluster_of_processes(tmp_path: Path) -> None:
    """Master, worker and driver as the manifests start them, on this machine: two readable orders, one stone."""
    env = environment(
        SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable, JAVA_HOME=str(find_java().home)
    )
    with ExitStack() as stack:
        broker = stack.enter_context(Broker())
        servers = broker.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            admin.create_topic("orders", partitions=2)
            admin.create_topic("orders.dead")
            admin.set_group_config("orders-pipeline", {"share.auto.offset.reset": "earliest"})
        produce(
            servers,
            "orders",
            ['{"id": 1, "count": 2, "price": 2.5}', "a stone", '{"id": 2, "count": 1, "price": 4}'],
        )

        master = container(named("spark.yaml", "Deployment", "spark-master"))["args"]
        here = {"$(POD_IP)": "127.0.0.1", "7077": "0", "8081": "0"}
        line = stack.enter_context(
            running(
                [here.get(word, word) for word in master], "Starting Spark master at", cwd=tmp_path, env=env
            )
        )
        address = line.split(" at ")[1].strip()
        worker = container(named("spark.yaml", "Deployment", "spark-worker"))["args"]
        here = {"spark://spark-master:7077": address, "/tmp/work": str(tmp_path / "work"), "4g": "1g"}
        stack.enter_context(
            running(
                [here.get(word, word) for word in worker], "Successfully registered", cwd=tmp_path, env=env
            )
        )
        driver = container(named("spark.yaml", "Deployment", "orders-driver"))["args"]
        here = {
            "spark://spark-master:7077": address,
            "spark.driver.host=orders-driver": "spark.driver.host=127.0.0.1",
            "spark.driver.port=7078": "spark.driver.port=0",
            "spark.blockManager.port=7079": "spark.blockManager.port=0",
            "2g": "512m",
            "/app/orders_pipeline.py": str(DEPLOY / "app" / "orders_pipeline.py"),
        }
        places = {"CHECKPOINT": str(tmp_path / "checkpoint"), "RESULTS": str(tmp_path / "results")}
        ran = subprocess.run(
            [here.get(word, word) for word in driver],
            cwd=tmp_path,
            env={**env, **places, "KAFKA_BOOTSTRAP_SERVERS": servers, "ONCE": "true"},
            capture_output=True,
            text=True,
            timeout=3 * WAIT_S,
        )
        assert ran.returncode == 0, ran.stderr[-5000:]
        with Admin(bootstrap_servers=servers) as admin:
            lags = [one.lag for one in admin.share_group_offsets("orders-pipeline").values()]
            assert sum(lag or 0 for lag in lags) == 0
            (letters,) = admin.list_offsets({("orders.dead", 0): LATEST}).values()
    assert letters.offset == 1
    assert list((tmp_path / "work").glob("app-*/0")), "a worker has run an executor"
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(tmp_path / "results").to_pylist()
    assert sorted((row["id"], row["total"]) for row in rows) == [(1, 5.0), (2, 4.0)]
