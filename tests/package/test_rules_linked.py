"""The twelve rules of a frame are written once, in docs/pipeline.md; code and tests refer to them by number.

Guards: a rule that is named and written nowhere; a rule without a test that names it.
"""

from __future__ import annotations

import re

from tests.package.tree import ROOT

NUMBERS = r"(?P<first>\d+)(?:(?P<word> to | and |, )(?P<last>\d+))?"
HEADINGS = {
    int(each) for each in re.findall(r"^### Rule (\d+): ", (ROOT / "docs/pipeline.md").read_text(), re.MULTILINE)
}


def named_in(*folders: str) -> dict[int, str]:
    """Rule number -> a file that names it."""
    found: dict[int, str] = {}
    for path in sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for match in re.finditer(rf"\brules? {NUMBERS}", path.read_text(), re.IGNORECASE):
            first, last = int(match["first"]), int(match["last"] or match["first"])
            numbers = range(first, last + 1) if match["word"] == " to " else (first, last)
            found.update(dict.fromkeys(numbers, str(path.relative_to(ROOT))))
    return found


def test_every_rule_that_is_named_has_its_heading() -> None:
    assert set(range(1, 13)) == HEADINGS
    unknown = {rule: where for rule, where in named_in("auras_ros", "sim", "tests").items() if rule not in HEADINGS}
    assert unknown == {}


def test_every_rule_has_a_test_that_names_it() -> None:
    assert named_in("tests/pipeline", "tests/evaluate").keys() >= HEADINGS


def test_no_rule_is_of_a_page_that_readers_do_not_have() -> None:
    word = "design" + " rule"
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    files = [path for folder in ("auras_ros", "sim", "tests") for path in (ROOT / folder).rglob("*.py")]
    assert [path.name for path in (*pages, *files) if word in path.read_text().lower()] == []
