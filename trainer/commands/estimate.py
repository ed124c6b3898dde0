"""`hone train --estimate`: what a campaign would take, and nothing is started.

Owns: how it prints. Refuses: counting (`trainer.programs.estimating`).
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from recorder.base.json_output import write_json
from recorder.base.terminal import echo, number, show_table
from recorder.commands.context import Context
from trainer.commands.requiring import require_own_choices

if TYPE_CHECKING:
    from trainer.campaign.estimate import Beside, Estimate


def estimate(context: Context) -> None:
    """Count the campaign of the settings, and say what it would take."""
    from trainer.campaign import begin
    from trainer.errors import CampaignError
    from trainer.programs.estimating import estimated

    settings = context.settings()
    require_own_choices(settings)
    try:
        found = asyncio.run(estimated(begin.plan(settings.campaign), settings))
    except CampaignError as e:  # nothing runs that could fail: something is set wrongly
        raise click.UsageError(str(e)) from e
    if context.json:
        write_json(asdict(found))
    else:
        _show_estimate(found)


def _show_estimate(found: Estimate) -> None:

    counts = found.counts
    measured = f"{counts.validations} validations" + (f", {counts.baselines} baselines" if counts.baselines else "")
    of = f"{counts.training:,} to train on, {counts.validation:,} to measure ({measured})"
    of += f", {counts.test:,} at the end" if counts.test else ""
    by = f"RULER {counts.ruler:,}, rubrics {counts.rubric:,}, by the recipe {found.recipe!r}"
    rows = [
        ("steps", f"{found.steps:,}", "at most"),
        ("attempts", f"{counts.attempts:,}", of),
        ("tokens sent by the agent", _known(found.agent.sent), found.agent.basis),
        ("tokens sampled", _known(found.agent.answered), ""),
        ("judge requests", f"{counts.ruler + counts.rubric:,}", by),
        ("tokens sent to the judge", _known(found.judge.sent), found.judge.basis),
        ("tokens of its answers", _known(found.judge.answered), ""),
        ("the judge's price", _price(found.judge_usd), ""),
    ]
    if found.strong is not None:
        rows += _beside(found.strong)
    show_table((f"campaign {found.campaign}", "how many", "how that is known"), rows, right=("how many",))
    for note in found.notes:
        echo(f"{note[0].upper()}{note[1:]}.")


def _beside(strong: Beside) -> list[tuple[str, str, str]]:
    """The rows of the strong judge."""
    by = f"RULER {strong.ruler:,}, rubrics {strong.rubric:,}: one group in {strong.every} is judged by it too"
    return [
        ("requests to the strong judge", f"{strong.ruler + strong.rubric:,}", by),
        ("tokens sent to it", _known(strong.tokens.sent), strong.tokens.basis),
        ("tokens of its answers", _known(strong.tokens.answered), ""),
        ("its price", _price(strong.usd), ""),
    ]


def _price(usd: float | None) -> str:
    return "not known" if usd is None else f"${usd:,.2f}"


def _known(count: int | None) -> str:
    return number(count, ",", missing="not known")
