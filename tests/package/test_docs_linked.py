"""The documentation hangs together: README.md links every page of docs/, and no link leads nowhere."""

from __future__ import annotations

import re
from pathlib import Path

from tests.package.tree import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]*)(#[^)\s]*)?\)")


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of a page's headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {"#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_links_every_page() -> None:
    linked = {(ROOT / target).resolve() for target, _ in LINK.findall((ROOT / "README.md").read_text())}
    assert [page.name for page in (ROOT / "docs").glob("*.md") if page not in linked] == []


def test_every_link_leads_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target, anchor in LINK.findall(page.read_text()):
            to = (page.parent / target).resolve() if target else page
            if not to.exists() or (anchor and anchor not in anchors(to)):
                broken.append(f"{page.name}: {target}{anchor}")
    assert broken == []
