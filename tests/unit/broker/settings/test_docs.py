"""The docs page of settings is generated; this holds it to the table."""

import runpy
from pathlib import Path

REPOSITORY = Path(__file__).parents[4]


def test_the_docs_page_is_what_the_table_says() -> None:
    generator = runpy.run_path(str(REPOSITORY / "tools" / "generate_settings_docs.py"))
    page = (REPOSITORY / "docs" / "reference" / "settings.md").read_text()
    assert page == generator["render"](), "run tools/generate_settings_docs.py"
