"""The files that run Headrace's own broker on one machine: systemd, Compose, a StatefulSet, the image.

Checked: the unit by `systemd-analyze verify`, the Compose file by its schema, the configurations by brokers and by
promtool, the Dockerfile by what it copies. Not checked: containers, since no Docker daemon can be assumed.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from headrace import Admin
from headrace.broker.settings import read_properties, unknown_settings
from tests.docs.pages import REPOSITORY
from tests.docs.test_deploy import container, environment, named, running

DEPLOY = REPOSITORY / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
TOKEN = "s" * 24
HEADRACE = str(Path(sys.executable).parent / "headrace")


@pytest.mark.needs_systemd
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "headrace.service"
    text = (DEPLOY / "systemd" / "headrace.service").read_text()
    assert text.count("/opt/headrace/bin/headrace") == 1
    unit.write_text(text.replace("/opt/headrace/bin/headrace", HEADRACE))
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    about_ours = [line for line in ran.stderr.splitlines() if "headrace" in line]
    assert (ran.returncode, about_ours) == (0, []), ran.stderr


@pytest.mark.parametrize("place", ["systemd", "compose"])
def test_settings_in_properties_files_exist(place: str) -> None:
    given = read_properties(DEPLOY / place / "server.properties")
    assert unknown_settings(given) == []


def test_the_service_does_not_open_the_broker_to_the_network() -> None:
    given = read_properties(DEPLOY / "systemd" / "server.properties")
    assert given["listeners"] == "PLAINTEXT://localhost:9092"
    assert "advertised.listeners" not in given


@pytest.mark.parametrize(
    ("file", "kind", "name"),
    [
        ("broker.yaml", "StatefulSet", "headrace-broker"),
        ("dashboard.yaml", "Deployment", "headrace-web"),
    ],
)
def test_prometheus_has_a_token_of_its_own_in_kubernetes(file: str, kind: str, name: str) -> None:
    (token,) = (
        one for one in container(named(file, kind, name))["env"] if one["name"] == "HEADRACE_METRICS_TOKEN"
    )
    secret = token["valueFrom"]["secretKeyRef"]
    assert f"--from-literal={secret['key']}=" in (DEPLOY / "kubernetes" / file).read_text()


def free_ports(text: str) -> str:
    """The properties with ports that are free on this machine."""
    ports: dict[str, str] = {}
    for port in sorted(set(re.findall(r":(\d{4,5})\b", text))):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            ports[port] = str(probe.getsockname()[1])
    return re.sub(r":(\d{4,5})\b", lambda found: f":{ports[found[1]]}", text)


def serve(command: list[str], properties: str, tmp_path: Path, **env: str) -> Any:
    """The command of a container, with its paths and ports moved."""
    config = tmp_path / "server.properties"
    config.write_text(properties)
    moved = {"/etc/headrace/server.properties": str(config), "0.0.0.0:8080": "127.0.0.1:0"}
    return running(
        [moved.get(word, word) for word in command],
        "listening on",
        cwd=tmp_path,
        env=environment(HEADRACE_SERVE_DATA=str(tmp_path / "data"), HEADRACE_WEB_TOKEN=TOKEN, **env),
    )


def test_the_broker_of_the_compose_file_serves_both_listeners(tmp_path: Path) -> None:
    broker = COMPOSE["services"]["broker"]
    text = free_ports((DEPLOY / "compose" / "server.properties").read_text())
    outside = re.search(r"OUTSIDE://localhost:(\d+)", text)
    assert outside is not None
    with (
        serve(broker["command"], text.replace("broker:", "localhost:"), tmp_path),
        Admin(bootstrap_servers=f"localhost:{outside[1]}") as admin,
    ):
        admin.create_topic("emails")
        assert [topic.name for topic in admin.list_topics()] == ["emails"]


def test_the_broker_of_the_stateful_set_serves(tmp_path: Path) -> None:
    config = named("broker.yaml", "ConfigMap", "headrace-broker")["data"]["server.properties"]
    text = free_ports(config).replace("headrace-broker:", "localhost:")
    broker = container(named("broker.yaml", "StatefulSet", "headrace-broker"))
    port = re.search(r"localhost:(\d+)", text)
    assert port is not None
    with (
        serve(broker["args"], text, tmp_path),
        Admin(bootstrap_servers=f"localhost:{port[1]}") as admin,
    ):
        assert admin.cluster().cluster_id


def test_a_service_manager_is_told_when_clients_are_served(tmp_path: Path) -> None:
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(address))
        told.settimeout(60)
        text = "listeners=PLAINTEXT://127.0.0.1:0\n"
        command = ["headrace", "serve", "--config", "/etc/headrace/server.properties"]
        with serve(command, text, tmp_path, NOTIFY_SOCKET=str(address)):
            assert told.recv(100) == b"READY=1"
        assert told.recv(100) == b"STOPPING=1"


@pytest.mark.needs_docs
def test_the_compose_file_fits_its_schema() -> None:
    import jsonschema

    schema = json.loads(
        files("check_jsonschema").joinpath("builtin_schemas/vendor/compose-spec.json").read_text()
    )
    jsonschema.validate(COMPOSE, schema)
    broken = {**COMPOSE, "services": {"broker": {"imagge": "headrace"}}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, schema)


def test_files_that_containers_mount_are_there() -> None:
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            is_file = source.startswith(".")
            assert (DEPLOY / "compose" / source).exists() if is_file else source in COMPOSE["volumes"]


@pytest.mark.needs_prometheus
def test_prometheus_takes_its_configuration(tmp_path: Path) -> None:
    for file in ("compose/prometheus.yml", "prometheus/headrace-alerts.yml"):
        shutil.copy(DEPLOY / file, tmp_path)
    config = tmp_path / "prometheus.yml"
    (tmp_path / "token").write_text(TOKEN)
    config.write_text(config.read_text().replace("/etc/prometheus/token", str(tmp_path / "token")))
    ran = subprocess.run(
        ["promtool", "check", "config", str(config)], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_commands_of_the_compose_file_are_ours() -> None:
    for service in COMPOSE["services"].values():
        command = service.get("command", ["headrace", "serve"])
        ran = subprocess.run(
            [sys.executable, "-m", "headrace", *command[1:2], "--help"],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "COLUMNS": "200"},
        )
        for word in command:
            assert not word.startswith("--") or word in ran.stdout or command[1] == "topic"


def test_the_dashboard_of_the_compose_file_watches_its_workers() -> None:
    services = COMPOSE["services"]
    serving = services["broker"]["command"]
    service, _, port = serving[serving.index("--watch") + 1].partition(":")
    command = services[service]["command"]
    assert command[:2] == ["headrace", "worker"]
    assert command[command.index("--http") + 1] == f"0.0.0.0:{port}"


# The image


def stages() -> dict[str, list[str]]:
    """The instructions of each stage of the Dockerfile, one a line."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text())
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("FROM"):
            found[line.split(" AS ")[1]] = current = [line]
        elif line and not line.startswith("#"):
            current.append(line)
    return found


def test_the_small_image_has_no_java_and_the_other_is_made_of_it() -> None:
    small, spark = stages()["headrace"], stages()["spark"]
    assert not any(re.search("openjdk|jvm", line) for line in small)
    assert spark[0].startswith("FROM headrace ")
    assert any("openjdk" in line for line in spark)
    for stage in (small, spark):
        users = [line for line in stage if line.startswith("USER")]
        assert users[-1] == "USER 1000", "nothing runs as root"


def test_what_the_image_copies_is_there() -> None:
    for line in (line for stage in stages().values() for line in stage if line.startswith("COPY")):
        for source in line.split()[1:-1]:
            assert source.startswith("dist/") or (REPOSITORY / source).exists(), line
    for line in (line for stage in stages().values() for line in stage if line.startswith("RUN pip")):
        for name in re.findall(r"-r /requirements/(\S+)", line):
            assert "--require-hashes" in line
            assert (REPOSITORY / "requirements" / name).exists()
