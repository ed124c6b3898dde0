"""`hone demo`: run the example that ships with Hone.

Owns: finding the example, and checking first whether this environment can serve and train. Refuses: the demo itself
(`examples/helpdesk`), which is not part of Hone and starts as a program of its own.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import click

import proxy
from recorder.base.errors import FAILED

MODULE = "examples.helpdesk.demo"


@click.command()
@click.option("--data", type=click.Path(path_type=Path), help="The data folder [a new folder in .hone/demo].")
@click.option("--seed", type=int, help="Random seed of the orders: the split, parcels and days.")
@click.option("--keep", is_flag=True, help="Keep running at the end, with the dashboard, until Ctrl-C.")
@click.pass_context
def demo(click_context: click.Context, data: Path | None, seed: int | None, keep: bool) -> None:
    """Let a small agent learn on this machine: a real engine, a judge, training and hot swaps, in minutes.

    It needs the extra [cpu] or [cuda], and downloads nothing.
    """
    from proxy.commands.doctor import print_finding
    from proxy.doctor.environment import EnvironmentNeeds, probe_python
    from recorder.base.findings import FindingLevel

    findings = asyncio.run(probe_python(sys.executable, EnvironmentNeeds(engine=True, training=True)))
    if in_the_way := [one for one in findings if one.verdict is FindingLevel.WRONG]:
        for one in in_the_way:
            print_finding(one)
        click_context.exit(FAILED)
    root = examples_root()
    arguments = [*(["--data", str(data)] if data else []), *(["--seed", str(seed)] if seed is not None else [])]
    arguments += ["--keep"] if keep else []
    # Replaces this process, so that only the demo receives Ctrl-C. -P: no module of the working directory.
    os.execve(sys.executable, [sys.executable, "-P", "-m", MODULE, *arguments], _environment(root))  # noqa: S606 - no shell is wanted


def examples_root(package: Path = Path(proxy.__file__).parent) -> Path:
    """The folder that contains `examples/`: in a wheel inside the package, in a clone the repository. Raises
    ClickException."""
    for root in (package / "shipped", package.parent):
        if root.joinpath(*MODULE.split(".")).with_suffix(".py").is_file():
            return root
    raise click.ClickException(
        f"the demo's files are missing next to {package}: reinstall Hone from a wheel or a clone"
    )


def _environment(root: Path) -> dict[str, str]:
    """This process's environment, with `examples` first on PYTHONPATH; the demo's child processes inherit it."""
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
