"""Somebody else's package, as a page of docs/ shows it: its module and its entry point, installed for one test."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
POLICY, WORLD = DOCS / "write-a-policy.md", DOCS / "worlds.md"


def code_of(page: Path, kind: str = "python") -> list[str]:
    """The blocks of this kind on a page."""
    return re.findall(rf"```{kind}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def install(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the page's first module into the folder, register its entry point, and put the folder on the path."""
    (toml,) = code_of(page, "toml")
    group, name, value = re.search(r'entry-points\."(.+?)"\]\n(\w+) = "(.+?)"', toml).groups()  # type: ignore[union-attr]
    module = value.partition(":")[0]
    (folder / f"{module}.py").write_text(code_of(page)[0], encoding="utf-8")
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, module, raising=False)
