"""Which tests are heavy, and their list."""

from __future__ import annotations

import ast
from pathlib import Path

from scripts.test_times import HEAVY_TESTS, heavy_tests

ROOT = Path(__file__).parent.parent.parent


def test_a_function_is_heavy_by_all_its_cases() -> None:
    lines = [
        {"test": "tests/test_a.py::test_many[1]", "cpu": 0.12},
        {"test": "tests/test_a.py::test_many[2-x[y]]", "cpu": 0.12},
        {"test": "tests/test_a.py::TestOf::test_one", "cpu": 0.5},
        {"test": "tests/test_b.py::test_light", "cpu": 0.19},
        {"test": "tests/test_names.py::test_names", "cpu": 5.0},
    ]
    assert heavy_tests(lines) == ["tests/test_a.py::TestOf::test_one", "tests/test_a.py::test_many"]


def test_the_list_names_tests_that_are_there() -> None:
    found: dict[str, set[str]] = {}
    for line in HEAVY_TESTS.read_text().split():
        file, _, name = line.partition("::")
        if file not in found:
            tree = ast.parse((ROOT / file).read_text("utf-8"))
            kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
            found[file] = {node.name for node in ast.walk(tree) if isinstance(node, kinds)}
        assert name.rpartition("::")[2] in found[file], f"{line} is gone: remove it from {HEAVY_TESTS.name}"
