"""`hone report`.

Owns: its flags, and where the page is written. Refuses: what a report contains (`recorder.report`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from recorder.base.terminal import echo, show, write_json

if TYPE_CHECKING:
    from recorder.commands.context import Context
    from recorder.report.shapes import CampaignReport
    from recorder.store.database import Project


@click.command()
@click.argument("campaign", required=False)
@click.option(
    "--html", "page_path", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Also write the report as one self-contained HTML file.",
)  # fmt: skip
@click.pass_obj
def report(context: Context, campaign: str | None, page_path: Path | None) -> None:
    """Show the results of a CAMPAIGN (its name or id; default: the newest): its curve with intervals, why it stopped,
    the best version, baselines, alarms, the cost of judging, what was excluded and why.

    A campaign that still runs, is paused or failed is shown as it is now. `hone train` writes the page to
    campaigns/NAME/report.html in the data folder. The page contains conversations, before and after: anyone who gets it
    can read them.
    """
    from recorder.commands.context import run
    from recorder.report import page, terminal

    found = run(context, lambda project: _load_report(project, campaign))
    if page_path is not None:
        page.write_page(found, page_path)
    if context.json:
        write_json(found)
    else:
        show(terminal.report_text(found))
        if page_path is not None:
            echo(f"Wrote {page_path}.")


async def _load_report(project: Project, campaign: str | None) -> CampaignReport:
    from recorder.report.contents import find_campaign, gather_report

    return await gather_report(project.store, await find_campaign(project, campaign))
