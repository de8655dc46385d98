"""One class a name, and no constructor that nobody can remember the arguments of."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.package.count_lines import ROOT, code_lines, files_here

MOST = 7  # parameters of a constructor, without self
RCLPY = {"auras_ros/ros/dds/node.py: Node", "auras_ros/ros/dds/qos.py: QoSProfile"}  # its signatures


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for path, source in files_here().items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                yield path, node


def test_no_two_classes_have_the_same_name() -> None:
    places = defaultdict(list)
    for path, node in classes():
        places[node.name].append(f"{path}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def parameters(node: ast.ClassDef) -> int:
    """Of the constructor as written; of a dataclass that may change, its fields. Frozen settings are excepted."""
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__":
            given = each.args
            return len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1
    marks = [ast.unparse(mark) for mark in node.decorator_list]
    if not any("dataclass" in mark for mark in marks) or any("frozen=True" in mark for mark in marks):
        return 0
    fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    return sum(each.value is None or "init=False" not in ast.unparse(each.value) for each in fields)


def test_no_constructor_has_more_than_seven_parameters() -> None:
    found = {f"{path}: {node.name}": parameters(node) for path, node in classes()}
    assert {name for name, count in found.items() if count > MOST} == RCLPY


def test_parameters_are_counted() -> None:
    source = """
class One:
    def __init__(self, a, b=1, *, c=2): ...
@dataclass
class Two:
    a: int
    b: list[int] = field(default_factory=list, init=False)
@dataclass(frozen=True)
class Three:
    a: int
"""
    nodes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    assert [parameters(node) for node in nodes] == [3, 1, 0]


def test_lines_of_code_are_counted_without_blanks_comments_and_docstrings() -> None:
    source = '"""Doc\nstring."""\n\n# comment\nx = (\n    1,\n)\n\ndef f():\n    """Doc."""\n    return """a\n\nb"""\n'
    assert code_lines(source) == 3 + 1 + 3
    assert Path(ROOT / "auras_ros").is_dir()
