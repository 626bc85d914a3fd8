"""Metadata of the wheel and the source archive that depends on where the project is published.

The README links to files of the repository. These links do not work where an archive is shown, so the long description
has absolute links below PROJECT_URL, at the tag of the version. Without PROJECT_URL in the environment (every build but
a release) it has the links' texts and no pictures, and the metadata lists no URLs. `make dist PROJECT_URL=...` is a
release; hatchling calls the hook at every build.
"""

import os
import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?!\w+:|#)(?P<target>[^)\s]+)\)")
COMMENT = re.compile(r"^<!--.*?-->\n", re.DOTALL | re.MULTILINE)


def long_description(readme: str, *, project_url: str | None, version: str) -> str:
    """The README without comments, and without links that only work inside the repository."""

    def replaced(link: re.Match[str]) -> str:
        if project_url is None:
            return "" if link["picture"] else link["text"]
        kind = "raw" if link["picture"] else "blob"
        return f"{link['picture']}[{link['text']}]({project_url}/{kind}/v{version}/{link['target']})"

    return LINK.sub(replaced, COMMENT.sub("", readme))


def urls(*, project_url: str | None, version: str) -> dict[str, str]:
    """The links beside the description, by their labels."""
    if project_url is None:
        return {}
    files = f"{project_url}/blob/v{version}"
    return {
        "Homepage": project_url,
        "Documentation": f"{files}/docs/index.md",
        "Changelog": f"{files}/CHANGELOG.md",
        "Source": project_url,
    }


class CustomMetadataHook(MetadataHookInterface):
    """Fills in `readme` and `urls`, which pyproject.toml declares dynamic."""

    def update(self, metadata: dict[str, object]) -> None:
        project_url = os.environ.get("PROJECT_URL", "").rstrip("/") or None
        version = str(metadata["version"])
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        text = long_description(readme, project_url=project_url, version=version)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = urls(project_url=project_url, version=version)
