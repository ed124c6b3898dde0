"""`hone dpo`: train a version on pairs of a chosen and a rejected answer, or count them.

Owns: its flags, and printing. Refuses: reading and training (`trainer.runtime.dpo`).
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
    from trainer.runtime.dpo import PairCounts

_SOURCES = {"preference": "by people's preferences", "ranking": "by rewards", "file": "of the file"}


@click.command()
@click.option("--alias", required=True, metavar="NAME", help="The alias that learns.")
@click.option(
    "--where", "conditions", multiple=True, metavar="CONDITION",
    help="Learn from recorded pairs whose sides have: tag.team=billing, version=NAME@2, started>1764000000, and as in "
    "`hone sft`. With the prefix chosen. or rejected. it is for one side. Repeatable: all must hold.",
)  # fmt: skip
@click.option(
    "--from", "file", type=click.Path(path_type=Path, dir_okay=False),
    help="Learn from a file: rows of prompt, chosen and rejected, JSON lines or parquet.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only count pairs, tokens, and what is excluded and why.")
@click.pass_obj
def dpo(context: Context, alias: str, conditions: tuple[str, ...], file: Path | None, dry_run: bool) -> None:
    """Train a version to prefer one answer to another, by pairs of a chosen and a rejected side (DPO).

    Without a file the pairs are the alias's own: people's preferences (`hone review`, the pages, feedback
    `preference`), and of each scored group the best against the worst trajectory if their rewards differ by
    `trainer.dpo.margin`. The version passes the same checks as any other before it goes live. A share of the tasks is
    held out; of several epochs, the one with the smallest loss on them becomes the version. `trainer.dpo` has the
    settings. The exit status is 1 if no version was made.
    """
    if conditions and file is not None:
        raise click.UsageError("--where selects recorded pairs, and --from FILE has its own: name one of them.")
    log_to_terminal()
    if dry_run:
        _count(context, alias, conditions, file)
    else:
        _train(context, alias, conditions, file)


def _count(context: Context, alias: str, where: Sequence[str], file: Path | None) -> None:
    from trainer.runtime.dpo import count_only

    counts = run(count_only(context.settings(), alias, where, file))
    if context.json:
        write_json(counts.as_json())
    else:
        _show_counts(counts)
    sys.exit(0 if counts.pairs else FAILED)


def _train(context: Context, alias: str, where: Sequence[str], file: Path | None) -> None:
    from trainer.runtime.dpo import train_on_pairs

    outcome = run(train_on_pairs(context.settings(), alias, where, file))
    if context.json:
        write_json(outcome.as_json("pairs"))
    else:
        _show_counts(outcome.counts)
        show_outcome(outcome, alias)
    sys.exit(0 if outcome.version is not None else FAILED)


def _show_counts(counts: PairCounts) -> None:
    sources = ", ".join(f"{count} {_SOURCES[source]}" for source, count in counts.sources.items())
    held_out = f", {counts.held_out} of them held out" if counts.held_out else ""
    echo(
        f"{counts.pairs} pairs{f' ({sources})' if sources else ''}{held_out}: {counts.rows} rows, {counts.tokens} "
        f"tokens, {counts.chosen_tokens} of them in chosen answers and {counts.rejected_tokens} in rejected ones, "
        f"{counts.rendered_tokens} of these rendered."
    )
    show_excluded([("pairs", code, count) for code, count in counts.excluded.items()], counts)
