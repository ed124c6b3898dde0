"""`hone calibrate`.

Owns: its flags. Refuses: holding judges against people (`judge.calibration`), how that reads
(`judge.commands.calibration_view`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from judge.settings import DEFAULT
from recorder.base.json_output import write_json
from recorder.commands.context import Context

if TYPE_CHECKING:
    from recorder.store.database import Project

    pass


@click.command()
@click.argument("labels", type=click.Path(path_type=Path), required=False)
@click.option(
    "--judges",
    default=DEFAULT,
    show_default=True,
    metavar="NAMES",
    help="Recipes, models by their LiteLLM names, and base, with commas between them.",
)
@click.option("--feedback", metavar="NAME", help="Without LABELS: feedback of this name counts as scores too.")
@click.option(
    "--tolerance",
    default=0.05,
    show_default=True,
    type=click.FloatRange(0, 1),
    help="By how much of the pairs a cheaper judge may be worse than the best.",
)
@click.option("--picture", type=click.Path(path_type=Path), help="SVG file to draw the accuracies into.")
@click.pass_obj
def calibrate(
    context: Context, labels: Path | None, judges: str, feedback: str | None, tolerance: float, picture: Path | None
) -> None:
    """Hold judges against people's labels of recorded groups, and say which is good enough.

    LABELS is a JSONL file: {"group", "pair": [run, run], "winner": run or null} a line, or {"group", "scores": {run:
    number}}. Without it the labels are what people preferred on the pages. Every judge is asked about every labelled
    group; no label is in its prompt, and nothing is written. Told are the rank correlation inside groups, the pairs
    ordered as people order them, Cohen's kappa, and by how much more often than people the judge prefers the run that
    it was shown earlier, or the longer one: each with its 95 % interval by bootstrap over groups.
    """
    from judge.calibration import labels as files
    from judge.calibration.comparison import CalibrationResult
    from judge.calibration.comparison import calibrate as hold
    from judge.commands.calibration_view import calibration_chart, calibration_json, show, watch_progress
    from recorder.commands.support import draw_into, require_folder, run
    from recorder.views.review.human_labels import list_preferences, list_ratings

    if labels is not None and feedback is not None:
        raise click.UsageError("--feedback goes without LABELS: name one of the two.")
    require_folder(picture)
    names = [name for name in dict.fromkeys(one.strip() for one in judges.split(",")) if name]
    if not names:
        raise click.UsageError("--judges names nobody.")
    of_file = files.read_labels(labels) if labels is not None else None
    settings = context.settings().judge

    async def held(project: Project) -> CalibrationResult:
        told = of_file
        if told is None:
            rates = await list_ratings(project, feedback) if feedback is not None else {}
            told = files.recorded_labels(await list_preferences(project), rates)
        if not told:
            raise click.UsageError("there is no label: name a file, prefer runs on a group's page, or say --feedback.")
        with watch_progress() as tell:
            return await hold(project, settings, names, told, tolerance, tell)

    found = run(context, held)
    if context.json:
        write_json(calibration_json(found))
    else:
        show(found)
    if picture is not None:
        draw_into(calibration_chart(found), picture)
