"""What the peers need and we do not: a Python environment with them in it, and programs of Debian's and of Go's.

All is set up at first use where that is possible; where it is not, `Missing` says what to do.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from bench.tasks import ROOT
from headrace.testing.user_cache import filled

REQUIREMENTS = ROOT / "requirements" / "peers.txt"
INSTALL_TIMEOUT_S = 900
NATS = "github.com/nats-io/nats-server/v2@v2.15.2"


class Missing(Exception):
    """Something of the peers' is not here and could not be installed; the rest of the bench goes on without them."""


def environment() -> Path:
    """The folder of the peers' commands, inside our own environment so that `make clean` finds it."""
    folder = Path(sys.prefix) / "peers"
    stamp = folder / ".set-up"
    if not stamp.exists() or stamp.stat().st_mtime < REQUIREMENTS.stat().st_mtime:
        venv.create(folder, with_pip=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        hashed = ["install", "--quiet", "--require-hashes", "-r", str(REQUIREMENTS)]
        _install([*pip, *hashed], f"installing {REQUIREMENTS.name}")
        stamp.touch()
    return folder / "bin"


def redis_server() -> Path:
    return _program("redis-server", package="redis-server", pattern="/usr/bin/redis-server")


def rabbitmq_server() -> Path:
    """The script itself: Debian's command of this name changes to another user and to the system's folders."""
    pattern = "/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server"
    return _program("", package="rabbitmq-server", pattern=pattern)


def postgres() -> Path:
    return _program("postgres", package="postgresql", pattern="/usr/lib/postgresql/*/bin/postgres")


def nats_server() -> Path:
    """Built by Go where that is possible, and else Debian's, which is years older."""
    go = shutil.which("go")
    if go is None:
        return _nats_of_debian()

    def fill(folder: Path) -> None:
        _install([go, "install", NATS], f"building {NATS}", env={**os.environ, "GOBIN": str(folder)})

    def is_built(folder: Path) -> bool:
        return (folder / "nats-server").exists()

    try:
        return filled(NATS.replace("/", "-"), is_current=is_built, fill=fill) / "nats-server"
    except Missing:
        return _nats_of_debian()


def _nats_of_debian() -> Path:
    return _program("nats-server", package="nats-server", pattern="/usr/sbin/nats-server")


def _program(name: str, *, package: str, pattern: str) -> Path:
    """What Debian's package puts at `pattern`, or what is on the path; installed where neither is and we may."""
    found = _find(name, pattern)
    if found is None:
        _install_package(package)
        found = _find(name, pattern)
    if found is None:
        raise Missing(f"{package} is not here (Debian: apt install {package})")
    return found


def _find(name: str, pattern: str) -> Path | None:
    """The newest, where several versions are."""
    of_debian = sorted(glob.glob(pattern), key=lambda path: [int(part) for part in re.findall(r"\d+", path)])
    named = shutil.which(name) if name else None
    return Path(of_debian[-1]) if of_debian else Path(named) if named else None


def _install_package(package: str) -> None:
    sudo = [] if os.getuid() == 0 else ["sudo", "-n"]
    install = [*sudo, "apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
    try:
        _install(install, f"installing {package}")
    except Missing:
        _install([*sudo, "apt-get", "update", "-qq"], f"looking for {package}")
        _install(install, f"installing {package}")
    # Debian starts a server when it installs it, and at every start of the machine: we want neither.
    for command in (["service", package, "stop"], ["update-rc.d", package, "disable"]):
        subprocess.run([*sudo, *command], capture_output=True, timeout=INSTALL_TIMEOUT_S, check=False)


def _install(command: list[str], what: str, env: dict[str, str] | None = None) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, env=env)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{what} failed: {error}") from error
    if done.returncode:
        raise Missing(f"{what} failed: {done.stderr.strip()[-500:]}")
