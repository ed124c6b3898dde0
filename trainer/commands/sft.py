"""`hone sft`: train a version on demonstrations, or count them.

Owns: its flags, and printing. Refuses: reading and training (`trainer.runtime.sft`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recorder.base.errors import FAILED
from recorder.base.terminal import echo, write_json
from recorder.commands.context import Context
from trainer.commands.fit_view import show_excluded, show_outcome
from trainer.commands.support import log_to_terminal, run

if TYPE_CHECKING:
    from trainer.runtime.sft import DemonstrationCounts


@click.command()
@click.option("--alias", required=True, metavar="NAME", help="The alias that learns.")
@click.option(
    "--where", "conditions", multiple=True, metavar="CONDITION",
    help="Imitate recorded trajectories with: reward>=0.9, best_of_group=yes, version=NAME@2, model=NAME, "
    "demonstration=yes, tag.team=billing. Repeatable: all must hold.",
)  # fmt: skip
@click.option(
    "--from", "file", type=click.Path(path_type=Path, dir_okay=False),
    help="Imitate a file: chat or prompt-completion, JSON lines or parquet.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only count rows, tokens, and what is excluded and why.")
@click.pass_obj
def sft(context: Context, alias: str, conditions: tuple[str, ...], file: Path | None, dry_run: bool) -> None:
    """Train a version to answer as demonstrations do: recorded trajectories, or a file.

    The version passes the same checks as any other before it goes live. A share of the tasks is held out; of several
    epochs, the one with the smallest loss on them becomes the version. `trainer.sft` has the settings. The exit status
    is 1 if no version was made.
    """
    if bool(conditions) == (file is not None):
        raise click.UsageError("name the demonstrations: --where CONDITION, or --from FILE.")
    log_to_terminal()
    if dry_run:
        _count(context, alias, conditions, file)
    else:
        _train(context, alias, conditions, file)


def _count(context: Context, alias: str, where: Sequence[str], file: Path | None) -> None:
    from trainer.runtime.sft import count_only

    counts = run(count_only(context.settings(), alias, where, file))
    if context.json:
        write_json(counts.as_json())
    else:
        _show_counts(counts)
    sys.exit(0 if counts.demonstrations else FAILED)


def _train(context: Context, alias: str, where: Sequence[str], file: Path | None) -> None:
    from trainer.runtime.sft import fine_tune

    outcome = run(fine_tune(context.settings(), alias, where, file))
    if context.json:
        write_json(outcome.as_json("demonstrations"))
    else:
        _show_counts(outcome.counts)
        show_outcome(outcome, alias)
    sys.exit(0 if outcome.version is not None else FAILED)


def _show_counts(counts: DemonstrationCounts) -> None:
    held_out = f", {counts.held_out} of them held out" if counts.held_out else ""
    echo(
        f"{counts.demonstrations} demonstrations{held_out}: {counts.rows} rows, {counts.tokens} tokens, "
        f"{counts.trained_tokens} of them imitated, {counts.rendered_tokens} of these rendered."
    )
    rows = [("demonstrations", code, count) for code, count in counts.excluded.items()]
    rows += [("answers, as context", code, count) for code, count in counts.context.items()]
    show_excluded(rows, counts)
