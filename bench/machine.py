"""What the operating system knows: a process' memory and processor time, and how quiet the machine is."""

import contextlib
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import median

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    """Resident memory of a process now, in MB (10^6 bytes)."""
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        return _status_kb(status, "VmRSS") * 1024 / 1e6
    shown = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(shown.stdout) * 1024 / 1e6


def memory_peak_mb(pid: int) -> float:
    """The most resident memory a process ever had; where the system does not say, what it has now."""
    status = Path(f"/proc/{pid}/status")
    return _status_kb(status, "VmHWM") * 1024 / 1e6 if status.exists() else memory_mb(pid)


def descendants(pid: int) -> list[int]:
    """The process and all that it and its children started; itself alone where the system has no /proc."""
    found = [pid]
    for one in found:
        for children in Path(f"/proc/{one}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += map(int, children.read_text().split())
    return found


def memory_shared_out_mb(pids: Iterable[int]) -> float:
    """Resident memory of processes together, pages they share counted once between them (PSS)."""
    total = 0.0
    for pid in pids:
        rollup = Path(f"/proc/{pid}/smaps_rollup")
        if rollup.exists():
            shown = next(line for line in rollup.read_text().splitlines() if line.startswith("Pss:"))
            total += int(shown.split()[1]) * 1024 / 1e6
        else:
            total += memory_mb(pid)
    return total


def _status_kb(status: Path, name: str) -> int:
    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(fields[name].split()[0])


def cpu_s(pid: int) -> float:
    """Processor time a process has used so far, its own and the kernel's for it."""
    stat = Path(f"/proc/{pid}/stat")
    if stat.exists():
        # The name, in parentheses, may hold spaces: fields are counted from behind it. utime and stime are 14 and 15.
        fields = stat.read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S
    shown = subprocess.run(["ps", "-o", "time=", "-p", str(pid)], capture_output=True, text=True, check=True)
    used_s = 0.0
    for part in shown.stdout.strip().split(":"):
        used_s = used_s * 60 + float(part)
    return used_s


def spin_s() -> float:
    """A fixed piece of work on one core: on a quiet machine it takes the same time whenever it is asked."""
    started = time.perf_counter()
    total = 0
    for number in range(1_000_000):
        total += number
    return time.perf_counter() - started


def fdatasync_ms(folder: Path) -> float:
    """How long the disk under `folder` takes to make 16 kB durable: the median of 50."""
    times = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(50):
            os.write(file.fileno(), b"x" * 16_384)
            started = time.perf_counter()
            os.fdatasync(file.fileno()) if hasattr(os, "fdatasync") else os.fsync(file.fileno())
            times.append((time.perf_counter() - started) * 1000)
    return median(times)


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def describe() -> str:
    return f"{platform.system()} {platform.machine()}, {cores()} cores, Python {platform.python_version()}"


def load_average() -> float:
    """Processes that wanted to run, over the last minute."""
    return os.getloadavg()[0]
