"""Runs the code in a Markdown page as its reader would, and holds it to what the page says it prints.

A page says by its blocks how it is to be run:

- `python` blocks are together one program. The comments at the beginning of its lines are exactly what it prints.
  Without such comments every line it prints must stand in the page, and what the page says it prints (prints `this`, or
  prints, followed by a `text` block) must be printed. If the program defines tests, pytest runs it.
- A block with a title (title="mail.py" after its language) is a file of that name.
- `console` blocks hold commands, `$ ` before each, and what they print; `...` stands for anything. They run in the
  order of the page, in one folder. `localhost:9092` (also as our commands' default) and `localhost:8080` become free
  ports.
- `<!-- runs on -->` above a console block: its command goes on until the page ends, as in another terminal. It is
  waited for until it has printed what the block says, and Ctrl+C must end it with status 0.
- `<!-- in a moment -->` above a console block: what it shows is done by another program, which may need a moment, so
  its commands are repeated until they print what the block says.
- `<!-- not run: why -->` above a block leaves it out. The reason `PAGE runs it` means that PAGE has the same block.
- `<!-- python` and lines of Python before `-->` belong to the program unseen: what a page takes for granted, such as a
  broker with records in it.
"""

import doctest
import os
import queue
import re
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
WAIT_S = 240
STOP_S = 40
MOMENT_S = 30
PLACES = ("localhost:9092", "localhost:8080")
FENCE = re.compile(
    r"(?:^[ ]*<!-- (?P<remark>runs on|in a moment|not run: [^\n]+) -->\n)?"
    r"^(?P<indent> *)(?:```(?P<language>\w+)(?P<rest>[^\n]*)\n(?P<text>.*?)^(?P=indent)```$"
    r"|<!-- python\n(?P<unseen>.*?)^-->$)",
    re.MULTILINE | re.DOTALL,
)
TITLE = re.compile(r'title="([^"]+)"')
PROMISE = re.compile(r"^# (.+)$", re.MULTILINE)
SAID = re.compile(r"\bprints `([^`\n]+)`|\bprints\n\n```text\n(.*?)```", re.DOTALL)
ALIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    text: str
    title: str | None
    remark: str | None


@dataclass(frozen=True, slots=True)
class Step:
    """A command of a console block and what it prints."""

    command: str
    output: str


@dataclass(frozen=True, slots=True)
class Page:
    path: Path
    blocks: list[Block]

    @property
    def program(self) -> str:
        own = (one for one in self.blocks if one.language == "python" and one.title is None)
        return "\n".join(one.text for one in own)

    @property
    def has_code(self) -> bool:
        return any(one.language in ("python", "console") for one in self.blocks)

    @property
    def needs_spark(self) -> bool:
        return any("pyspark" in one.text or "kafka-share" in one.text for one in self.blocks)


def read_page(path: Path) -> Page:
    blocks = []
    for found in FENCE.finditer(path.read_text()):
        title = TITLE.search(found["rest"] or "")
        remark = found["remark"]
        if remark is None or not remark.startswith("not run"):
            text = textwrap.dedent(found["text"] or found["unseen"])
            blocks.append(Block(found["language"] or "python", text, title and title[1], remark))
    return Page(path, blocks)


def all_pages() -> list[Page]:
    pages = map(read_page, [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))])
    return [page for page in pages if page.has_code]


def steps_of(block: Block) -> list[Step]:
    """Its commands; a line that ends in a backslash goes on in the next."""
    text = block.text.replace("\\\n", " ")
    return [
        Step(command.strip(), output)
        for command, _, output in (
            part.partition("\n") for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]
        )
    ]


def run_page(page: Page, folder: Path) -> None:
    """Raises AssertionError, with what was printed, where the page is wrong."""
    ports = _free_ports()
    with ExitStack() as running:
        for block in page.blocks:
            text = _placed(block.text, ports)
            if block.title is not None:
                (folder / block.title).write_text(text)
            elif block.language == "console":
                for step in steps_of(block):
                    command, output = _placed(step.command, ports), _placed(step.output, ports)
                    environment = {**_environment(), "HEADRACE_BOOTSTRAP_SERVER": ports[PLACES[0]]}
                    if block.remark == "in a moment":
                        _run_step(command, output, folder, environment, moment_s=MOMENT_S)
                    elif block.remark is None:
                        _run_step(command, output, folder, environment)
                    else:
                        running.enter_context(_kept_running(command, output, folder, environment))
    if page.program:
        _run_program(page, _placed(page.program, ports), folder)


def _run_program(page: Page, program: str, folder: Path) -> None:
    warnings = [] if page.needs_spark else ["-W", "error"]
    (folder / "test_page.py").write_text(program)
    if re.search(r"^def test_", program, re.MULTILINE):
        ran = _python(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_page.py")
        assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
        return
    ran = _python(folder, *warnings, "test_page.py")
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    promised = PROMISE.findall(program)
    printed = ran.stdout.splitlines()
    if promised:
        assert printed == promised, f"printed {printed}, promised {promised}"
    else:
        text = page.path.read_text()
        unsaid = [line for line in printed if line.strip() not in text]
        assert not unsaid, f"printed, and not in the page: {unsaid}"
        said = [line for found in SAID.findall(text) for line in "".join(found).splitlines()]
        unprinted = [line for line in said if line not in printed]
        assert not unprinted, f"in the page, and not printed: {unprinted}"


def _python(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=_environment(), capture_output=True, text=True, timeout=WAIT_S
    )


def _run_step(
    command: str, output: str, folder: Path, environment: dict[str, str], *, moment_s: float = 0.0
) -> None:
    until = time.monotonic() + moment_s
    while True:
        ran = subprocess.run(
            command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=WAIT_S
        )
        if time.monotonic() >= until or _is_alike(output, ran.stdout):
            break
    assert ran.returncode == 0, f"$ {command}\n{ran.stdout}\n{ran.stderr}"
    assert _is_alike(output, ran.stdout), f"$ {command}\n{ran.stdout}\nshould be\n{output}\n{ran.stderr}"


@contextmanager
def _kept_running(command: str, output: str, folder: Path, environment: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen(
        f"exec {command}",
        shell=True,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    noise: list[str] = []
    readers = [
        threading.Thread(target=lambda: [lines.put(line) for line in process.stdout or ()]),
        threading.Thread(target=lambda: noise.extend(process.stderr or ())),
    ]
    try:
        for reader in readers:
            reader.start()
        _wait_for(output, lines, noise, command)
        yield
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(STOP_S) == 0, f"$ {command} ended with {process.returncode}\n{''.join(noise)}"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(STOP_S)
        for reader in readers:
            reader.join(STOP_S)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _wait_for(output: str, lines: "queue.SimpleQueue[str]", noise: list[str], command: str) -> None:
    printed = ""
    deadline = time.monotonic() + WAIT_S
    while not _is_alike(output, printed):
        try:
            printed += lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise AssertionError(f"$ {command}\n{printed}\nshould be\n{output}\n{''.join(noise)}") from None


def _is_alike(wanted: str, printed: str) -> bool:
    return doctest.OutputChecker().check_output(wanted.rstrip() + "\n", printed.rstrip() + "\n", ALIKE)


def _placed(text: str, ports: dict[str, str]) -> str:
    for place, port in ports.items():
        text = text.replace(place, port)
    return text


def _free_ports() -> dict[str, str]:
    ports = {}
    with ExitStack() as held:
        for place in PLACES:
            listener = held.enter_context(socket.create_server(("localhost", 0)))
            ports[place] = f"localhost:{listener.getsockname()[1]}"
    return ports


def _environment() -> dict[str, str]:
    """The reader's: our command on the path, and a terminal wide enough for tables."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, "PATH": path, "COLUMNS": "160", "PYTHONUNBUFFERED": "1"}
