"""Every Python program, file and command in the pages of the documentation does what its page says."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import REPOSITORY, Page, all_pages, read_page, run_page

ELSEWHERE = re.compile(r"^<!-- not run: (\S+) runs it -->\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def parameters() -> list[object]:
    return [
        pytest.param(
            page,
            id=str(page.path.relative_to(REPOSITORY)),
            marks=[pytest.mark.needs_spark] if page.needs_spark else [],
        )
        for page in all_pages()
    ]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", parameters())
def test_a_page_does_what_it_says(page: Page, tmp_path: Path) -> None:
    run_page(page, tmp_path)


def test_a_block_that_another_page_runs_is_in_that_page_word_for_word() -> None:
    found = 0
    for path in [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]:
        for page, text in ELSEWHERE.findall(path.read_text()):
            assert text in [block.text for block in read_page(REPOSITORY / page).blocks], f"{path}: {page}"
            found += 1
    assert found > 0


def page_of(tmp_path: Path, *lines: str) -> Page:
    path = tmp_path / "page.md"
    path.write_text("\n".join(lines) + "\n")
    return read_page(path)


def test_a_program_that_prints_something_else_fails(tmp_path: Path) -> None:
    page = page_of(tmp_path, "```python", "print(1 + 1)", "# 3", "```")
    with pytest.raises(AssertionError):
        run_page(page, tmp_path)


def test_a_program_that_prints_what_no_one_has_said_fails(tmp_path: Path) -> None:
    page = page_of(tmp_path, "It adds.", "```python", "print(40 + 2)", "```")
    with pytest.raises(AssertionError, match="42"):
        run_page(page, tmp_path)


@pytest.mark.parametrize("said", ["It prints `42`.", "It prints\n\n```text\n42\n```"])
def test_a_program_that_does_not_print_what_the_page_says_fails(tmp_path: Path, said: str) -> None:
    page = page_of(tmp_path, said, "```python", "40 + 2", "```")
    with pytest.raises(AssertionError, match="not printed: \\['42'\\]"):
        run_page(page, tmp_path)


def test_a_program_that_fails_fails(tmp_path: Path) -> None:
    page = page_of(tmp_path, "```python", "1 / 0", "```")
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run_page(page, tmp_path)


def test_a_command_that_prints_something_else_fails(tmp_path: Path) -> None:
    page = page_of(
        tmp_path,
        '```python title="two.py"',
        "print('two')",
        "```",
        "```console",
        "$ python two.py",
        "three",
        "```",
    )
    with pytest.raises(AssertionError, match="should be"):
        run_page(page, tmp_path)


def test_files_and_commands_work_together_and_dots_stand_for_anything(tmp_path: Path) -> None:
    lines = [
        '```python title="two.py"',
        "print('one two three')",
        "```",
        "```console",
        "$ python two.py",
        "one ... three",
        "```",
    ]
    run_page(page_of(tmp_path, *lines), tmp_path)


def test_a_command_that_goes_on_is_waited_for_and_interrupted(tmp_path: Path) -> None:
    # Blocked, so that a signal that comes while the line is still being printed waits, too.
    block = "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})"
    program = ["import signal", block, "print('ready')", "signal.sigwait({signal.SIGINT})"]
    head = [
        '```python title="wait.py"',
        *program,
        "```",
        "<!-- runs on -->",
        "```console",
        "$ python wait.py",
    ]
    run_page(page_of(tmp_path, *head, "ready", "```"), tmp_path)


def test_what_another_program_does_in_a_moment_is_waited_for(tmp_path: Path) -> None:
    program = ["from pathlib import Path", "tries = Path('tries')"]
    program += [
        "tries.write_text(tries.read_text() + '.' if tries.exists() else '.')",
        "print(len(tries.read_text()))",
    ]
    head = ['```python title="count.py"', *program, "```"]
    run_page(
        page_of(tmp_path, *head, "<!-- in a moment -->", "```console", "$ python count.py", "3", "```"),
        tmp_path,
    )
    with pytest.raises(AssertionError, match="should be"):
        run_page(page_of(tmp_path, *head, "```console", "$ python count.py", "5", "```"), tmp_path)


def test_a_block_that_is_not_run_is_left_out(tmp_path: Path) -> None:
    page = page_of(tmp_path, "<!-- not run: needs a cluster -->", "```python", "1 / 0", "```")
    assert not page.has_code


def test_unseen_lines_belong_to_the_program(tmp_path: Path) -> None:
    page = page_of(tmp_path, "<!-- python", "answer = 42", "-->", "```python", "print(answer)", "# 42", "```")
    run_page(page, tmp_path)
