"""American spelling, as in Kafka's own names: behavior, canceled, color, initialize."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.tidy.tree import GENERATED, name_of, text_files

BRITISH = re.compile(
    r"(?:behavi|col|endeav|fav|flav|harb|hon|hum|lab|neighb|rum|vap)our(?!ly|se|ce)"
    r"|(?:author|capital|categor|custom|final|general|initial|local|material|maxim|memor|minim|normal|optim|organ"
    r"|parallel|prior|priorit|random|real|recogn|serial|special|standard|summar|synchron|token|util|vector|virtual|visual)"
    r"is(?:e[ds]?|ing|ation)(?![a-z])"
    r"|analys(?:e[ds]?|ing)(?![a-z])|catalogue|centre|defence|fulfil(?!l)|judgement|licence|litre(?!s?al)"
    r"|(?:cancel|label|level|model|signal|total|travel)l(?:ed|ing)"
    r"|(?:after|for|to)wards(?![a-z])|artefact|burnt|grey|learnt|spelt|whilst|amongst",
    re.IGNORECASE,
)
WORD = re.compile(r"[A-Za-z_]+")
FOREIGN = {
    "CancelledError": "Python's",
    "_cancelled": "Python's, of asyncio.Handle",
    "labelledby": "of HTML: aria-labelledby",
    "organisation": "of Ivy's files",
    "SPARK_JOB_CANCELLED": "Spark's",
    "forwards": "the verb",
    "spelt": "the grain",
}
"""Names and words that others have chosen."""
SPARK_SAYS = re.compile(r"Job 7 cancelled.*|\(was \)\?cancelled")
"""Messages of Spark."""
METHOD = re.compile(r"\.cancell(?:ed|ing)\(\)|def cancelled\(")
"""Of futures and tasks, in Python."""


def british(text: str) -> Iterator[str]:
    words = set(WORD.findall(METHOD.sub("", SPARK_SAYS.sub("", text))))
    return (word for word in words if is_british(word))


@cache
def is_british(word: str) -> bool:
    return word not in FOREIGN and BRITISH.search(word) is not None


def test_words_have_their_american_spelling() -> None:
    found = {
        name_of(path): sorted(set(british(path.read_text())))
        for path in text_files()
        if path != Path(__file__) and GENERATED not in path.parents
    }
    assert len(found) > 1_000
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize(
    "text",
    ["its behaviour", "COLOURS = ()", "def initialise(self):", "is_cancelled = True", "a neighbouring range"],
)
def test_a_british_word_is_found(text: str) -> None:
    assert [*british(text)] != []


@pytest.mark.parametrize(
    "text",
    [
        "except asyncio.CancelledError:",
        "if task.cancelled():",
        "task.cancelling()",
        "the color of each hour",
        "it is a premise",
    ],
)
def test_an_american_word_or_a_name_of_others_is_good(text: str) -> None:
    assert [*british(text)] == []
