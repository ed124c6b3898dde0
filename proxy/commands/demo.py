"""`hone demo`: the example that comes with Hone, run where Hone runs.

Owns: finding the example, and looking first whether this environment can serve and train. Refuses: the demo itself
(`examples/helpdesk`), which is no part of Hone and is started as a program of its own.
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
@click.option("--data", type=click.Path(path_type=Path), help="Where everything is kept [a new folder in .hone/demo].")
@click.option("--seed", type=int, help="Other orders: another split, other parcels and days.")
@click.option("--keep", is_flag=True, help="At the end stay up, with its pages, until Ctrl-C.")
@click.pass_context
def demo(click_context: click.Context, data: Path | None, seed: int | None, keep: bool) -> None:
    """Let a small agent learn on this machine: a real engine, a judge, training and hot swaps, in minutes.

    Needs the extra [cpu] or [cuda], and downloads nothing.
    """
    from proxy.commands.doctor import print_finding
    from proxy.doctor.environment import EnvironmentNeeds, probe_python
    from recorder.base.findings import FindingLevel

    found = asyncio.run(probe_python(sys.executable, EnvironmentNeeds(engine=True, training=True)))
    if in_the_way := [one for one in found if one.verdict is FindingLevel.WRONG]:
        for one in in_the_way:
            print_finding(one)
        click_context.exit(FAILED)
    root = examples_root()
    arguments = [*(["--data", str(data)] if data else []), *(["--seed", str(seed)] if seed is not None else [])]
    arguments += ["--keep"] if keep else []
    # In our place, so that Ctrl-C reaches it alone. -P: no module of the working directory.
    os.execve(sys.executable, [sys.executable, "-P", "-m", MODULE, *arguments], _environment(root))  # noqa: S606 - no shell is wanted


def examples_root(package: Path = Path(proxy.__file__).parent) -> Path:
    """The folder that holds `examples/`: in a wheel one of ours, in a clone the repository. Raises ClickException."""
    for root in (package / "shipped", package.parent):
        if root.joinpath(*MODULE.split(".")).with_suffix(".py").is_file():
            return root
    raise click.ClickException(f"the demo's files are not beside {package}: install Hone anew, from a wheel or a clone")


def _environment(root: Path) -> dict[str, str]:
    """Ours, in which Python finds `examples` first; what the demo starts inherits it."""
    paths = [str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
