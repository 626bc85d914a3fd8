"""Writes tests/unit/wire/kafka_bytes.json: digests of the bytes that Apache Kafka's own classes make of every message.

    python tools/kafka_bytes.py

The jars are those that tools/generate_messages.py reads. It needs a JDK (17 or newer) and is run when messages were
generated anew; the test that reads the file needs neither. `python tools/kafka_bytes.py --hex` prints the bytes
themselves, to see where ours differ.
"""

import hashlib
import json
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import headrace.wire.messages
from headrace.testing.kafka_jars import definitions_jar, kafka_jars
from headrace.wire.message import Message

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "tests" / "unit" / "wire" / "kafka_bytes.json"
PACKAGES = (
    "org.apache.kafka.common.message.{}Data",
    "org.apache.kafka.common.message.{}",
    "org.apache.kafka.coordinator.group.generated.{}",
    "org.apache.kafka.coordinator.share.generated.{}",
    "org.apache.kafka.coordinator.transaction.generated.{}",
)


def message_classes() -> list[type[Message]]:
    found = []
    for info in iter_modules(headrace.wire.messages.__path__):
        module = import_module(f"headrace.wire.messages.{info.name}")
        wanted = info.name.replace("_", "")
        (message,) = (each for name, each in vars(module).items() if name.lower() == wanted)
        found.append(message)
    return found


def java_class(name: str, known: set[str]) -> str | None:
    return next((package.format(name) for package in PACKAGES if package.format(name) in known), None)


def known_classes(jar: Path) -> set[str]:
    return {entry.removesuffix(".class").replace("/", ".") for entry in zipfile.ZipFile(jar).namelist()}


def kafka_bytes() -> list[tuple[str, int, str, bytes]]:
    """Requests and responses by the newest clients; the coordinators' records by the release that wrote their jars."""
    released = sorted(kafka_jars().glob("*.jar"))
    newest = [definitions_jar(), *released]
    clients = known_classes(definitions_jar())
    coordinators = {name for jar in released if "coordinator" in jar.name for name in known_classes(jar)}
    return _written_by(newest, clients) + _written_by(released, coordinators)


def _written_by(jars: list[Path], known: set[str]) -> list[tuple[str, int, str, bytes]]:
    lines = [
        f"{message.__name__} {java} {message.VERSIONS[0]} {message.VERSIONS[1]}"
        for message in message_classes()
        if (java := java_class(message.__name__, known)) is not None
    ]
    command = ["java", "-cp", ":".join(map(str, jars)), str(ROOT / "tools" / "KafkaBytes.java")]
    text = subprocess.run(
        command, check=True, input="\n".join(lines), stdout=subprocess.PIPE, text=True
    ).stdout
    rows = (line.split(" ") for line in text.splitlines())
    return [(name, int(version), fill, bytes.fromhex(data)) for name, version, fill, data in rows]


def main() -> None:
    rows = kafka_bytes()
    if "--hex" in sys.argv:
        for name, version, fill, data in rows:
            print(name, version, fill, data.hex())
        return
    digests: dict[str, dict[str, list[str]]] = {}
    for name, version, _, data in rows:
        digest = hashlib.sha256(data).hexdigest()[:12]
        digests.setdefault(name, {}).setdefault(str(version), []).append(digest)
    lines = [f"{json.dumps(name)}: {json.dumps(versions)}" for name, versions in digests.items()]
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{len(rows)} digests of {len(digests)} messages written to {TARGET}")


if __name__ == "__main__":
    main()
