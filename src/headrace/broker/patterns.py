"""Regular expressions from clients that cannot be made slow: matched in time linear in the text.

Kafka takes patterns in RE2 syntax (ListTransactions, subscriptions of KIP-848 groups). Python's own matcher
goes back on its steps and can be kept busy for years by a short pattern; on the broker's one thread that
would stop everybody. So the structure of a pattern (alternatives, groups, repetition) is compiled here into a
small program, and all its threads walk through the text together, one character at a time. Single characters
and classes are left to Python's `re`, which cannot lose its way in one character. Like RE2 this refuses what
needs memory of the text: back-references, look-around.

Where the threads are is remembered with where each character leads them, so that an ordinary pattern soon costs one
look-up for each character. A pattern that keeps leading them to new places is refused once it has taken WORK_MAX steps.
"""

import re
from array import array
from collections.abc import Callable
from typing import NamedTuple

from headrace.wire.errors import ErrorCode, KafkaError

PATTERN_MAX = 4096
REPEAT_MAX = 1000
PROGRAM_MAX = 20_000
DEPTH_MAX = 100
WORK_MAX = 200_000
"""Steps of one pattern that were not taken before, over all texts: about half a second."""

Threads = bytes
"""The places in the program that are reached at some place in the text: in order, each a number of 16 bits."""
END = b"\0\0"
"""Place 0, which comes first."""
Test = Callable[[str], bool]
Claim = Callable[[str, str], bool]
"""What must hold between two characters; "" stands for the text's edges."""


class Step(NamedTuple):
    """One step of a program: take a character, or check a claim, or split in two; then go on at `next`."""

    next: int
    take: Test | None = None
    claim: Claim | None = None
    other: int = -1


def _is_word(character: str) -> bool:
    return character == "_" or (character.isascii() and character.isalnum())


CLAIMS: dict[str, Claim] = {
    "^": lambda before, after: not before,
    "\\A": lambda before, after: not before,
    "$": lambda before, after: not after,
    "\\z": lambda before, after: not after,
    "\\b": lambda before, after: _is_word(before) != _is_word(after),
    "\\B": lambda before, after: _is_word(before) == _is_word(after),
}
CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "lower": "a-z",
    "punct": "!-/:-@\\[-`{-~",
    "space": "\\s",
    "upper": "A-Z",
    "word": "\\w",
    "xdigit": "0-9A-Fa-f",
}
_ATOM = re.compile(
    r"\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]|\\x\{[0-9A-Fa-f]+\}|\\x[0-9A-Fa-f]{2}|\\[^\w]|\\[dDwWsSAzbBtnrfva]|[^\\\[]",
    re.DOTALL,
)
_REPEAT = re.compile(r"(?:([*+?])|\{(\d+)(?:(,)(\d*))?\})(\??)")
_GROUP = re.compile(r"\((?:\?(?:([ims]+)?(?:-([ims]+))?(:|\))|P?<\w+>))?")
_FLAGS = {"i": re.IGNORECASE, "m": re.MULTILINE, "s": re.DOTALL}


class Pattern:
    """KafkaError(INVALID_REGULAR_EXPRESSION) if `text` is no pattern."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > PATTERN_MAX:
            raise _invalid(text, f"longer than {PATTERN_MAX} characters")
        compiler = _Compiler(text)
        self._start = compiler.compile()
        self._steps = compiler.steps
        self._looks_ahead = any(step.claim is not None for step in self._steps)
        self._moves: dict[tuple[Threads | None, str, str], Threads] = {}
        """Where the threads are after a character, and before the next, which claims look at. None: at the start."""
        self._known: dict[Threads, Threads] = {}
        self._work = 0

    def matches(self, text: str) -> bool:
        """Whether the whole text matches; KafkaError as above if that takes too long."""
        threads = self._move(None, "", text[:1])
        for index, character in enumerate(text):
            threads = self._move(threads, character, text[index + 1 : index + 2])
            if not threads:
                return False
        return threads.startswith(END)

    def _move(self, threads: Threads | None, character: str, after: str) -> Threads:
        key = (threads, character, after if self._looks_ahead else "")
        found = self._moves.get(key)
        if found is None:
            taken = [self._start] if threads is None else self._take(threads, character)
            found = self._reach(taken, character, after)
            found = self._moves[key] = self._known.setdefault(found, found)
            self._work += (len(threads or b"") + len(found)) // 2
            if self._work > WORK_MAX:
                self._moves.clear()
                self._known.clear()
                raise _invalid(self.text, "it takes too many steps to match")
        return found

    def _take(self, threads: Threads, character: str) -> list[int]:
        steps = (self._steps[place] for place in memoryview(threads).cast("H"))
        return [step.next for step in steps if step.take is not None and step.take(character)]

    def _reach(self, places: list[int], before: str, after: str) -> Threads:
        """All places that are reached without taking a character."""
        reached: set[int] = set()
        todo = places
        while todo:
            place = todo.pop()
            if place in reached:
                continue
            reached.add(place)
            step = self._steps[place]
            if step.take is None and (step.claim is None or step.claim(before, after)):
                todo += [each for each in (step.other, step.next) if each >= 0]
        return array("H", sorted(reached)).tobytes()


class _Compiler:
    """Builds the program from its end: every part is told where to go on, and returns where it begins."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.depth = 0
        self.flags = re.NOFLAG
        self.steps = [Step(-1)]
        """Place 0 is the end of the match."""

    def compile(self) -> int:
        build = self.alternatives()
        if self.position < len(self.text):
            raise _invalid(self.text, "a closing parenthesis without its opening")
        return build(0)

    def add(self, step: Step) -> int:
        if len(self.steps) >= PROGRAM_MAX:
            raise _invalid(self.text, "too large")
        self.steps.append(step)
        return len(self.steps) - 1

    def alternatives(self) -> Callable[[int], int]:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise _invalid(self.text, "nested too deeply")
        branches = [self.sequence()]
        while self.text.startswith("|", self.position):
            self.position += 1
            branches.append(self.sequence())
        self.depth -= 1

        def build(goal: int) -> int:
            start = branches[-1](goal)
            for branch in branches[-2::-1]:
                start = self.add(Step(branch(goal), other=start))
            return start

        return build

    def sequence(self) -> Callable[[int], int]:
        parts: list[Callable[[int], int]] = []
        while self.position < len(self.text) and self.text[self.position] not in "|)":
            parts.append(self.repeated(self.part()))

        def build(goal: int) -> int:
            for part in reversed(parts):
                goal = part(goal)
            return goal

        return build

    def part(self) -> Callable[[int], int]:
        if self.text.startswith("\\Q", self.position):
            return self.quoted()
        if self.text[self.position] == "(":
            return self.group()
        if self.text[self.position] in "*+?":
            raise _invalid(self.text, f"nothing to repeat at {self.position}")
        match = _ATOM.match(self.text, self.position)
        if match is None:
            raise _invalid(self.text, f"syntax error at {self.position}")
        self.position = match.end()
        claim = CLAIMS.get(match[0])
        if claim is not None:
            return lambda goal: self.add(Step(goal, claim=claim))
        take = self.test(match[0])
        return lambda goal: self.add(Step(goal, take=take))

    def test(self, atom: str) -> Test:
        atom = re.sub(r"\[:(\w+):\]", lambda match: CLASSES.get(match[1], match[0]), atom)
        atom = re.sub(r"\\x\{(\w+)\}", lambda match: re.escape(chr(int(match[1], 16))), atom)
        try:
            matches = re.compile(
                atom if atom not in ")*+?{}|" else re.escape(atom), self.flags | re.ASCII
            ).fullmatch
        except (re.error, ValueError, OverflowError) as error:
            raise _invalid(self.text, str(error)) from None
        return lambda character: matches(character) is not None

    def quoted(self) -> Callable[[int], int]:
        end = self.text.find("\\E", self.position)
        literal = self.text[self.position + 2 : end if end >= 0 else None]
        self.position = end + 2 if end >= 0 else len(self.text)
        tests = [self.test(re.escape(character)) for character in literal]

        def build(goal: int) -> int:
            for take in reversed(tests):
                goal = self.add(Step(goal, take=take))
            return goal

        return build

    def group(self) -> Callable[[int], int]:
        match = _GROUP.match(self.text, self.position)
        assert match is not None
        self.position = match.end()
        if match[0] == "(" and self.text.startswith("?", self.position):
            raise _invalid(self.text, "back-references and look-around are not supported")
        outer = self.flags
        for flag in match[1] or "":
            self.flags |= _FLAGS[flag]
        for flag in match[2] or "":
            self.flags &= ~_FLAGS[flag]
        if match[3] == ")":  # (?i): for the rest of the enclosing group
            return lambda goal: goal
        build = self.alternatives()
        if not self.text.startswith(")", self.position):
            raise _invalid(self.text, "an opening parenthesis without its closing")
        self.position += 1
        self.flags = outer
        return build

    def repeated(self, part: Callable[[int], int]) -> Callable[[int], int]:
        match = _REPEAT.match(self.text, self.position)
        if match is None:
            return part
        self.position = match.end()
        if _REPEAT.match(self.text, self.position):
            raise _invalid(self.text, f"repetition of a repetition at {self.position}")
        if match[1]:
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[match[1]]
        else:
            low = int(match[2])
            high = low if match[3] is None else int(match[4]) if match[4] else None
        if max(low, high or 0) > REPEAT_MAX or (high is not None and high < low):
            raise _invalid(self.text, f"bad repetition {match[0]}")
        return lambda goal: self.repetition(part, low, high, goal)

    def repetition(self, part: Callable[[int], int], low: int, high: int | None, goal: int) -> int:
        if high is None:
            loop = self.add(Step(goal))
            self.steps[loop] = Step(part(loop), other=goal)
            goal = loop
        end = goal  # who leaves out one leaves out all that follow
        for _ in range((high or low) - low):
            goal = self.add(Step(part(goal), other=end))
        for _ in range(low):
            goal = part(goal)
        return goal


def _invalid(text: str, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_REGULAR_EXPRESSION, f"{text[:200]!r} is not a regular expression: {why}"
    )
