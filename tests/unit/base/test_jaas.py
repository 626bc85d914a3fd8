"""JAAS lines: module, options, quotes and escapes."""

import pytest

from headrace.base.jaas import parse_jaas


def test_a_line_has_a_module_and_options() -> None:
    line = 'org.example.PlainLoginModule required username="a b" password=\'c"d\' bare=x user_e="\\"f\\\\";'
    assert parse_jaas(line) == (
        "PlainLoginModule",
        {"username": "a b", "password": 'c"d', "bare": "x", "user_e": '"f\\'},
    )


def test_options_may_be_missing_or_on_lines_of_their_own() -> None:
    assert parse_jaas("a.B required;") == ("B", {})
    assert parse_jaas('a.B required\n  c="d"\n  e="f";\n') == ("B", {"c": "d", "e": "f"})


def test_a_backslash_means_what_it_means_to_java() -> None:
    written = r'a.B required c="\t\n\101\18\400\z\\t";'
    assert parse_jaas(written).options == {"c": "\t\nA\x018\x200z\\t"}


@pytest.mark.parametrize(
    "line", ["", "geheim", "a.B required", "a.B required geheim;", 'a.B required c="geheim;']
)
def test_anything_else_is_refused_without_being_shown(line: str) -> None:
    with pytest.raises(ValueError, match="not a JAAS line") as refused:
        parse_jaas(line)
    assert "geheim" not in str(refused.value)
