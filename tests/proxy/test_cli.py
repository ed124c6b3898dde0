"""The `hone` command: light at the top, clear when something is wrong."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import click
import pytest

from proxy.cli import COMMANDS, RENAMED_FLAGS
from recorder.commands.context import Context
from tests.proxy.hone_command import hone

pytestmark = pytest.mark.usefixtures("bare")

ROOT = Path(__file__).parents[2]
HEAVY = (
    "litellm", "torch", "vllm", "transformers", "sqlalchemy", "litestar", "aiohttp", "mcp", "pydantic", "rich", "httpx"
)  # fmt: skip


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom proxy.cli import cli\n"
        "try:\n    cli(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert "rollback" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def explained(command: click.Command, *names: str) -> None:
    """Hold that the command, and every one below it, tells of itself."""
    code, out, _ = hone(*names, "--help")
    assert code == 0
    assert out.startswith(f"Usage: hone {' '.join(names)}")
    assert command.help
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            explained(below, *names, name)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_of_the_table_is_there_and_explains_itself(name: str) -> None:
    module, _, attribute = COMMANDS[name][0].partition(":")
    command = getattr(importlib.import_module(module), attribute)
    assert isinstance(command, click.Command)
    explained(command, name)


def test_a_misspelt_command_is_met_with_the_nearest() -> None:
    code, _, err = hone("versoins")
    assert code == 2
    assert "Did you mean 'versions'?" in err


@pytest.mark.parametrize(("command", "old", "new"), [(*flag, new) for flag, new in RENAMED_FLAGS.items()])
def test_a_renamed_flag_is_an_error_that_names_todays(command: str, old: str, new: str) -> None:
    code, _, err = hone(*command.split(), old, "1")
    assert code == 2
    assert f"{old} is now called {new}." in err
    code, out, _ = hone(*command.split(), "--help")
    assert f"{new} " in out
    assert f"{old} " not in out


def test_an_unknown_key_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "hone.toml").write_text("[proxy]\nprot = 1\n")
    code, _, err = hone("config")
    assert code == 2
    assert err.strip() == "hone: hone.toml: unknown key 'proxy.prot'. Did you mean 'proxy.port'?"


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    (tmp_path / "hone.toml").write_text("[proxy]\nprot = 1\n")
    with pytest.raises(Exception, match="unknown key"):
        hone("config", "--debug")


def test_a_missing_store_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    code, _, err = hone("versions", "--data", str(tmp_path / "nothing"))
    assert code == 1
    assert err.startswith("hone: ")
    assert "nothing" in err
    assert len(err.strip().splitlines()) == 1


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_self: Context) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Context, "loaded", broken)
    with pytest.raises(ZeroDivisionError):
        hone("config")
