"""`headrace serve` for a suite that uses one broker for all its tests: plain, with SCRAM and with TLS."""

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from headrace.testing.child_process import ChildProcess
from tests.unit.broker.security.certificates import TestAuthority

START_S_MAX = 60
USER, PASSWORD = "suite", "suite-secret"
LISTENERS = ("PLAINTEXT", "SASL_PLAINTEXT", "SSL")
ADVERTISED = re.compile(r"listener (\w+)://\S+ advertised=(\S+)")


@dataclass(frozen=True, slots=True)
class ServedBroker:
    """A running broker: its address by the listener's name, and the certificate to trust."""

    addresses: dict[str, str]
    ca: Path


@contextmanager
def served(folder: Path) -> Iterator[ServedBroker]:
    """Runs a broker with its data in `folder`; stops it in the end."""
    authority = TestAuthority(folder)
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in LISTENERS),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.keystore()),
    }
    command = [sys.executable, "-m", "headrace", "serve", "--data", str(folder / "data")]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    command += ["--add-scram", f"SCRAM-SHA-256=[name={USER},password={PASSWORD}]"]
    process = ChildProcess(command, output=folder / "headrace.log", env={"PYTHONUNBUFFERED": "1"})
    try:
        yield ServedBroker(_addresses(process), authority.ca)
    finally:
        process.stop()


def _addresses(process: ChildProcess) -> dict[str, str]:
    deadline = time.monotonic() + START_S_MAX
    while "listening on" not in process.output_text():
        if not process.is_running or time.monotonic() > deadline:
            raise RuntimeError(f"headrace serve did not start: {process.output_tail()}")
        time.sleep(0.02)  # the pace of looking: another process starts
    return dict(ADVERTISED.findall(process.output_text()))
