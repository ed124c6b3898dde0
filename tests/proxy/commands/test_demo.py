"""`hone demo`: where the example is found, and that it starts nothing in an environment that cannot serve."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from proxy.commands import demo
from proxy.doctor import environment
from recorder.base.findings import Finding, FindingLevel
from tests.proxy.hone_command import hone

ROOT = Path(__file__).parents[3]


def test_in_a_clone_the_example_is_the_repositorys() -> None:
    assert demo.examples_root() == ROOT


def test_in_a_wheel_it_is_the_one_that_came_along(tmp_path: Path) -> None:
    package = tmp_path / "proxy"
    shipped = package / "shipped" / "examples" / "helpdesk" / "demo.py"
    shipped.parent.mkdir(parents=True)
    shipped.write_text("")
    assert demo.examples_root(package) == package / "shipped"


def test_an_installation_without_the_example_is_told(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match="reinstall Hone"):
        demo.examples_root(tmp_path)


def test_what_cannot_serve_is_told_with_the_line_that_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look(python: str, needs: environment.EnvironmentNeeds) -> list[Finding]:
        assert needs == environment.EnvironmentNeeds(engine=True, training=True)
        return [Finding("environment", FindingLevel.WRONG, "vllm is not installed.", f"{python} -m pip install it")]

    monkeypatch.setattr(environment, "probe_python", look)
    code, out, _ = hone("demo")
    assert code == 1
    assert "vllm is not installed." in out
    assert "-m pip install it" in out
