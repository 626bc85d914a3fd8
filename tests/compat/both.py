"""Runs the same tool against our broker and Apache Kafka, and makes what it prints comparable."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from headrace.testing import KafkaTools
from headrace.testing.kafka_tools import ToolOutput

T = TypeVar("T")
# What differs between any two clusters, and what takes its place.
OWN_TO_A_CLUSTER = (
    (re.compile(r"127\.0\.0\.1:\d+"), "SERVER"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r"[\w+/-]{22}(?= +/127\.0\.0\.1 )"), "MEMBER-ID"),
    (re.compile(r"(?<=TopicId: )\S{22}|(?<=\"topicId\":\")[^\"]{22}"), "TOPIC-ID"),
    (re.compile(r"\b17\d{11}\b|\b18\d{11}\b"), "TIME"),
    # Apache Kafka writes this one down for the whole cluster when "eligible leader replicas" are on; one node has none.
    (re.compile(r"min\.insync\.replicas=1,?"), ""),
    (re.compile(r"[ \t]+"), " "),
)

ERROR = re.compile(r"org\.apache\.kafka\.common\.(?:errors|config)\.(\w+)")


def comparable(text: str) -> list[str]:
    """Lines without what is a cluster's own (addresses, ids, times) and without the padding of columns."""
    for pattern, placeholder in OWN_TO_A_CLUSTER:
        text = pattern.sub(placeholder, text)
    return [line.strip() for line in text.splitlines() if line.strip()]


@dataclass(frozen=True, slots=True)
class Pair:
    """What a tool said about our broker, and what it said about Apache Kafka."""

    ours: ToolOutput
    theirs: ToolOutput

    def same_lines(self) -> list[str]:
        """The lines that both printed, in their order; fails when they differ."""
        return self._same(comparable)

    def same_lines_in_any_order(self) -> list[str]:
        """For tools that print a hash map."""
        return self._same(lambda text: sorted(comparable(text)))

    def same_lines_but_for(self, newer: str) -> list[str]:
        """As `same_lines`, without the lines of ours about something that only Kafka 4.4 has."""
        assert newer in self.ours.stdout
        return self._same(lambda text: [line for line in comparable(text) if newer not in line])

    def same_refusal(self) -> set[str]:
        """The Kafka errors that both runs ended with, by their Java names; the words are each broker's own."""
        ours, theirs = (set(ERROR.findall(output.stderr)) for output in (self.ours, self.theirs))
        assert ours == theirs, f"standard error on our broker:\n{self.ours.stderr}"
        assert self.ours.status == self.theirs.status
        return ours

    def _same(self, read: Callable[[str], list[str]]) -> list[str]:
        ours, theirs = read(self.ours.stdout), read(self.theirs.stdout)
        assert ours == theirs, f"standard error on our broker:\n{self.ours.stderr}"
        assert self.ours.status == self.theirs.status
        return ours


@dataclass(frozen=True, slots=True)
class Both:
    """The two clusters. Their tools run at the same time: a JVM spends much of its life waiting."""

    ours: KafkaTools
    theirs: KafkaTools

    def run(self, tool: str, *arguments: str | Path, stdin: str = "", check: bool = True) -> Pair:
        return Pair(*self.each(lambda tools: tools.run(tool, *arguments, stdin=stdin, check=check)))

    def each(self, action: Callable[[KafkaTools], T]) -> tuple[T, T]:
        """What `action` gives for our broker and for Apache Kafka."""
        with ThreadPoolExecutor(2) as pool:
            ours, theirs = pool.map(action, (self.ours, self.theirs))
        return ours, theirs
