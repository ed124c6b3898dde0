"""Which texts name a function of the user."""

from __future__ import annotations

import pytest

from recorder.base.function_paths import is_function_path


@pytest.mark.parametrize("text", ["my:reward", "package.module:reward", "my:Checks.reward", "_a.b1:_c"])
def test_a_function_is_named_by_its_module_and_its_name(text: str) -> None:
    assert is_function_path(text)


@pytest.mark.parametrize(
    "text",
    ["reward", "my:", ":reward", "my.:reward", "a..b:c", "my:a..b", "my:1", "python agent.py", "my:reward\n", "my: r"],
)
def test_everything_else_is_no_function(text: str) -> None:
    assert not is_function_path(text)
