"""The table of proposals cannot claim what no test holds up, nor keep silent about what one does."""

import runpy
import textwrap
from pathlib import Path

import pytest

GENERATOR = runpy.run_path(str(Path(__file__).resolve().parents[3] / "tools" / "generate_kip_docs.py"))
Kip, KipError, render_table = (GENERATOR[name] for name in ("Kip", "KipError", "render_table"))
BOTH = "tests/conformance/test_it.py"


def found_in(text: str, path: str = BOTH) -> list:
    return list(GENERATOR["tests_of"](path, textwrap.dedent(text)))


CITING = '''
    def test_a_lock_is_renewed():
        """KIP-1222."""

    def test_another():
        assert "KIP-1" + "206"
'''


def test_a_test_cites_by_its_own_text() -> None:
    assert {test.name: set(test.cites) for test in found_in(CITING)} == {
        "test_a_lock_is_renewed": {1222},
        "test_another": {1},
    }


def test_a_modules_docstring_speaks_for_all_its_tests() -> None:
    (test,) = found_in('"""KIP-227."""\nclass TestIt:\n    async def test_one(self): ...\n')
    assert test.cites == {227}


def test_a_row_names_the_tests_and_whether_apache_kafka_runs_them() -> None:
    here = found_in('def test_it(): "KIP-7"', "tests/unit/test_it.py")
    assert "| KIP-7 | speed | broker | `unit/test_it.py` | no |" in render_table(
        {7: Kip("speed", "broker")}, here
    )
    both = found_in('def test_it(): "KIP-7"')
    assert "| `conformance/test_it.py` | yes |" in render_table({7: Kip("speed", "broker")}, both)


def test_a_proposal_without_a_test_is_refused() -> None:
    with pytest.raises(KipError, match="KIP-8 has no test"):
        render_table({8: Kip("more speed", "client")}, [])


def test_a_place_without_a_test_is_refused() -> None:
    with pytest.raises(KipError, match=r"names tests/gone\.py"):
        render_table({8: Kip("more speed", "client", ("tests/gone.py",))}, found_in('def test_it(): "KIP-8"'))


def test_a_cited_proposal_must_be_in_the_table() -> None:
    with pytest.raises(KipError, match="9"):
        render_table({}, found_in('def test_it(): "KIP-9"'))
