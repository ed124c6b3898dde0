"""`hone calibrate`.

Owns: its flags. Refuses: comparing judges with people (`judge.calibration`), and the output
(`judge.commands.calibration_view`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from judge.settings import DEFAULT
from recorder.base.terminal import write_json
from recorder.commands.context import Context

if TYPE_CHECKING:
    from recorder.store.database import Project


@click.command()
@click.argument("labels", type=click.Path(path_type=Path), required=False)
@click.option(
    "--judges",
    default=DEFAULT,
    show_default=True,
    metavar="NAMES",
    help="Judge recipes, LiteLLM names of models, and base, separated by commas.",
)
@click.option("--feedback", metavar="NAME", help="Without LABELS: use feedback of this name as scores too.")
@click.option(
    "--tolerance",
    default=0.05,
    show_default=True,
    type=click.FloatRange(0, 1),
    help="Share of pairs by which a cheaper judge may be worse than the best.",
)
@click.option("--picture", type=click.Path(path_type=Path), help="SVG file for a chart of the accuracies.")
@click.pass_obj
def calibrate(
    context: Context, labels: Path | None, judges: str, feedback: str | None, tolerance: float, picture: Path | None
) -> None:
    """Compare judges with people's labels of recorded groups, and say which judge is good enough.

    LABELS is a JSONL file: {"group", "pair": [trajectory, trajectory], "winner": trajectory or null} a line, or
    {"group", "scores": {trajectory: number}}. Without it the labels are the preferences given on the pages. Every judge
    is asked about every labelled group. No label is in a prompt, and no score is written. With 30 pairs or more, the
    share of pairs that a judge orders as people do is stored: steps weigh its groups of two by it. The output has the
    rank correlation inside groups, the share of pairs ordered as people order them, Cohen's kappa, and how much more
    often than people the judge prefers the trajectory that it saw first, or the longer one: each with a 95 % bootstrap
    interval over groups.
    """
    from judge.calibration import labels as files
    from judge.calibration.comparison import CalibrationResult
    from judge.calibration.comparison import calibrate as compare_judges
    from judge.commands.calibration_view import calibration_chart, calibration_json, show, watch_progress
    from recorder.commands.context import draw_into, require_folder, run
    from recorder.queue.judging.calibrations import record_agreements
    from recorder.views.review.human_labels import list_preferences, list_ratings

    if labels is not None and feedback is not None:
        raise click.UsageError("--feedback excludes LABELS: name one of them.")
    require_folder(picture)
    names = [name for name in dict.fromkeys(one.strip() for one in judges.split(",")) if name]
    if not names:
        raise click.UsageError("--judges names no judge.")
    of_file = files.read_labels(labels) if labels is not None else None
    settings = context.settings().judge

    async def compare(project: Project) -> CalibrationResult:
        given = of_file
        if given is None:
            rates = await list_ratings(project, feedback) if feedback is not None else {}
            given = files.recorded_labels(await list_preferences(project), rates)
        if not given:
            raise click.UsageError(
                "there are no labels: name a file, give preferences on a group's page, or use --feedback."
            )
        with watch_progress() as tell:
            found = await compare_judges(project, settings, names, given, tolerance, tell)
        await record_agreements(project, [agreement for one in found.judges for agreement in one.agreements])
        return found

    found = run(context, compare)
    if context.json:
        write_json(calibration_json(found))
    else:
        show(found)
    if picture is not None:
        draw_into(calibration_chart(found), picture)
