"""The how-to names every option."""

from pathlib import Path

import pytest

from headrace.spark.options import option_names

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "spark.md"


@pytest.mark.parametrize("name", option_names())
def test_every_option_is_explained(name: str) -> None:
    assert f"| `{name}`" in PAGE.read_text()
