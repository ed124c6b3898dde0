"""What a shell completes: commands, options, aliases and versions; and a script for each shell that asks for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proxy.commands.gated import make_versions
from tests.proxy.hone_command import hone

pytestmark = pytest.mark.usefixtures("bare")
ROOT = Path(__file__).parents[3]


def completed(*words: str) -> list[str]:
    """As bash asks: the words of a line, of which the last is half written."""
    asked = {"_HONE_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(["hone", *words]), "COMP_CWORD": str(len(words))}
    done = subprocess.run(
        [sys.executable, "-c", "from proxy.cli import cli; cli(prog_name='hone')"],
        env=os.environ | asked | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert not done.stderr
    return [line.partition(",")[2] for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("shell", "says"), [("bash", "COMP_WORDS"), ("zsh", "#compdef hone"), ("fish", "complete --no-files")]
)
def test_each_shell_has_a_script_that_asks_hone(shell: str, says: str) -> None:
    code, out, _ = hone("completion", shell)
    assert code == 0
    assert says in out
    assert f"_HONE_COMPLETE={shell}_complete" in out


def test_another_shell_is_refused_with_those_that_there_are() -> None:
    code, _, err = hone("completion", "csh")
    assert code == 2
    assert "bash" in err


@pytest.mark.slow
def test_bash_reads_its_script(tmp_path: Path) -> None:
    assert shutil.which("bash"), "make setup needs bash as well: install it"
    script = tmp_path / "hone.bash"
    script.write_text(hone("completion", "bash")[1])
    done = subprocess.run(
        ["bash", "-c", f"source {script}; complete -p hone"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("hone")


@pytest.mark.slow
def test_commands_and_options_are_completed() -> None:
    assert completed("sta") == ["status"]
    assert completed("completion", "") == ["bash", "zsh", "fish"]
    assert "--watch" in completed("groups", "--")


@pytest.mark.slow
def test_aliases_and_versions_of_the_store_are_completed(tmp_path: Path) -> None:
    make_versions(tmp_path, 2)
    data = ("--data", str(tmp_path))
    assert completed("rollback", *data, "he") == ["helpdesk"]
    assert set(completed("promote", *data, "helpdesk@")) == {"helpdesk@0", "helpdesk@1", "helpdesk@2"}
    assert completed("promote", "--data", str(tmp_path / "none"), "he") == []
