"""`python -m tests.package.count_lines [COMMIT [LATER]]`: lines of code of each package, here or at a later commit, and
the difference from a commit.

Counted are the lines of auras_ros, sim, kernels and scripts that hold code: no blank lines, comments or docstrings.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COUNTED = ("auras_ros", "sim", "kernels", "scripts")
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(source: str) -> int:
    """Lines with a token that is neither a comment nor part of a docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        first = node.body[0] if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            lines -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(lines)


def rooms(files: dict[str, str]) -> Counter[str]:
    """Package -> its lines of code. files: path from the root -> text."""
    found: Counter[str] = Counter()
    for path, source in files.items():
        parts = Path(path).parts
        if parts[0] in COUNTED and path.endswith(".py"):
            found["/".join(parts[:2]) if len(parts) > 2 else parts[0]] += code_lines(source)
    return found


def files_here() -> dict[str, str]:
    paths = [path for name in COUNTED for path in (ROOT / name).rglob("*.py") if not path.is_symlink()]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


def files_of(commit: str) -> dict[str, str]:
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tree:
        members = [member for member in tree if member.isfile() and member.name.endswith(".py")]
        return {member.name: tree.extractfile(member).read().decode() for member in members}  # type: ignore[union-attr]


def main(argv: list[str]) -> None:
    now = rooms(files_of(argv[1]) if len(argv) > 1 else files_here())
    before = rooms(files_of(argv[0])) if argv else now
    for room in sorted(now | before):
        print(f"{now[room]:7,} {now[room] - before[room]:+7,}  {room}")
    print(f"{now.total():7,} {now.total() - before.total():+7,}  sum")


if __name__ == "__main__":
    main(sys.argv[1:])
