"""Checks a page in the browser with axe-core, which comes inside the package axe-playwright-python.

`problems(page)` is a list of sentences, empty for a good page. The rules are those of WCAG 2.0 to 2.2, A and AA, and
axe's best practices.
"""

from importlib.resources import files
from typing import Any

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
RUN = "tags => axe.run(document, {runOnly: {type: 'tag', values: tags}, resultTypes: ['violations']})"


def problems(page: Any) -> list[str]:
    page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text())
    result = page.evaluate(RUN, TAGS)
    return [
        f"{violation['id']}: {violation['help']}: {node['html'][:200]} ({node['failureSummary']})"
        for violation in result["violations"]
        for node in violation["nodes"]
    ]
