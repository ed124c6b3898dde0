"""`hone compare`: the attempts of a group side by side on a terminal.

Owns: reading arguments, and the look of the columns. Refuses: the comparison (`recorder.views.comparison`), queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import click

from recorder.base.terminal import clean, clean_line, color_line, console, format_number, write_json
from recorder.base.terminal import show as print_shown
from recorder.commands.context import Context, run
from recorder.errors import NotFound

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from recorder.store.database import Project
    from recorder.views.comparison.alignment import ComparedCall
    from recorder.views.comparison.attempts import Attempt, Comparison, ComparisonCell
    from recorder.views.comparison.judge_records import ScoreRecord

SHOWN_CHARS: Final = 300  # of one text, without --full
_PREFERENCES: Final = 10  # human preferences, newest first
_COLUMN: Final = 24  # characters: a narrower column is not shown


@click.command()
@click.argument("group", metavar="GROUP")
@click.option("--left", metavar="TRAJECTORY", help="Compare this trajectory with another; both by their ids.")
@click.option("--right", metavar="TRAJECTORY", help="The other one. Default: the best of the others.")
@click.option("--full", is_flag=True, help="Show long texts in full.")
@click.option("--judge", is_flag=True, help="Show the judge's prompt and reply instead.")
@click.option(
    "--reply",
    default=0,
    show_default=True,
    type=click.IntRange(min=0),
    metavar="N",
    help="With --judge: the number of the reply to show with its prompt. The first is 0.",
)
@click.pass_obj
def compare(
    context: Context, group: str, left: str | None, right: str | None, full: bool, judge: bool, reply: int
) -> None:
    """Show the attempts of a group side by side: best first, with their rewards and where they differ.

    GROUP is Hone's id, the end of it, or the id that its caller gave. As many columns as fit are shown, best first;
    --left and --right choose two. --judge shows the judge's prompt and reply for the current score.
    """
    if judge:
        _print_judging(context, run(context, lambda project: _judging(project, group, reply)))
        return
    found = run(context, lambda project: _load(project, group, left, right))
    if context.json:
        write_json(found)
        return
    print_shown(*_shown(found, None if full else SHOWN_CHARS))


async def _load(project: Project, group: str, left: str | None, right: str | None) -> Comparison:
    from recorder.views.comparison.loader import load_comparison

    return await load_comparison(project.store, await _named(project, group), left=left, right=right)


async def _named(project: Project, group: str) -> str:
    from recorder.queue.groups.lookup import find_group
    from recorder.views.lists.short_ids import expand_id

    return await find_group(project, await expand_id(project, group))


async def _judging(project: Project, group: str, reply: int) -> ScoreRecord:
    """Return the current score with its prompt. Raises NotFound."""
    from recorder.views.comparison.judge_records import load_judgings

    group_id = await _named(project, group)
    current = next((one.id for one in await load_judgings(project.store, group_id) if one.current), None)
    if current is None:
        raise NotFound(f"group {group_id} has no score: `hone judge` scores groups that are ready")
    return next(one for one in await load_judgings(project.store, group_id, prompt=current, reply=reply) if one.current)


def _print_judging(context: Context, found: ScoreRecord) -> None:
    if context.json:
        write_json(found)
    else:
        print_shown(*_judging_lines(found))


def _judging_lines(found: ScoreRecord) -> Iterable[RenderableType]:
    from rich.text import Text

    yield clean_line(f"{found.id} by {found.judge_version or found.judge_model or 'checks alone'}", "bold")
    if found.prompt is None:
        yield clean_line(
            "No prompt is stored: no judge judged it, a trajectory was deleted, or the score is of an older release.",
            "dim",
        )
    said = [
        (f"reply {one.number} of {one.judge_version or one.judge_model}", one.reply or one.failed or "")
        for one in found.replies
    ]
    if found.agreement is not None:
        yield clean_line(
            f"{len(found.replies)} replies, agreement {found.agreement:.2f} (mean tau-b over pairs)", "dim"
        )
    for role, text in [(one.role, one.content) for one in found.prompt or ()] + (
        said or [("reply", found.reply or "")]
    ):
        yield clean_line(role, "dim")
        yield Text(clean(text))


def _shown(c: Comparison, limit: int | None) -> Iterable[RenderableType]:
    from rich.text import Text

    from recorder.views.lists.titles import group_outcome, title_of

    head = c.group
    became = group_outcome(head.state, [one.reward for one in c.attempts])
    yield clean_line(title_of(head.task, head.external_id, head.id), "bold").append_text(clean_line(f"  {became}"))
    about = [head.id, head.external_id, head.alias, head.version, head.scenario, f"{head.members} attempts"]
    yield clean_line(" · ".join(str(one) for one in about if one), "dim")
    yield clean_line(f"advantage: {c.rule}", "dim")
    fits = max(2, console().width // _COLUMN)
    if fits < len(c.columns):
        yield clean_line(
            f"{fits} of {len(c.columns)} columns fit: --left and --right choose two, --json has all", "yellow"
        )
    yield Text()
    if c.beginning:
        last = c.beginning[-1]
        yield clean_line(
            f"all begin with the same {len(c.beginning)} messages; the last is {last.role}: {_cut(last.text, limit)}"
        )
    yield _table(c, min(fits, len(c.columns)), limit)
    yield from _preferences(c, limit)


def _preferences(c: Comparison, limit: int | None) -> Iterable[RenderableType]:

    if c.preferences:
        yield clean_line("human preferences, newest first", "dim")
    for one in c.preferences[:_PREFERENCES]:
        why = f": {_cut(one.comment, limit)}" if one.comment else ""
        yield clean_line(f"  {one.sentence()} ({one.by or 'unknown person'}){why}")
    if len(c.preferences) > _PREFERENCES:
        yield clean_line(f"  and {len(c.preferences) - _PREFERENCES} older ones: --json has them", "dim")


def _table(c: Comparison, columns: int, limit: int | None) -> RenderableType:
    from rich import box
    from rich.table import Table

    wide = console().is_terminal  # lines in a file are not wrapped
    made = Table(box=box.SQUARE, border_style="dim", padding=(0, 1), header_style="", show_lines=True, expand=wide)
    made.add_column("", style="dim")
    attempts = [c.attempt(number) for number in c.columns[:columns]]
    for at, one in enumerate(attempts):
        more = len(c.identical[at]) if c.identical else 0
        made.add_column(_head(one, more), ratio=1, overflow="fold")
    if attempts:
        made.add_row("judge", *(_judged(one, limit) for one in attempts))
    for at, row in enumerate(c.rows, len(c.beginning) + 1):
        made.add_row(str(at), *(cell_text(cell, limit) for cell in row[:columns]))
    return made


def _head(one: Attempt, more: int) -> Text:
    from rich.text import Text

    from recorder.views.lists.short_ids import shorten_id

    gain = "" if one.advantage is None else f"  {one.advantage:+.3g}"
    times = f"× {more + 1}  " if more else ""
    head = Text.assemble(
        clean_line(f"{one.number}. {times}", "dim"),
        clean_line(format_number(one.reward), "bold"),
        clean_line(gain),
        "  ",
    )
    head.append_text(color_line(one.trajectory.state)).append("\n")
    return head.append_text(
        clean_line(
            f"{one.trajectory.external_id or shorten_id(one.trajectory.id)}  {one.trajectory.version or ''}", "dim"
        )
    )


def _judged(one: Attempt, limit: int | None) -> Text:
    from rich.text import Text

    told = [_cut(clean(one.explanation), limit)] if one.explanation else []
    for part in one.parts:
        why = f": {_cut(clean(part.explanation), limit)}" if part.explanation else ""
        told.append(f"{clean(part.name)} {format_number(part.value)}{why}")
    for turn in one.turns:
        if turn.difference is not None:
            told.append(
                f"turn {turn.number} {format_number(turn.value)} ({turn.difference:+.3g} from the group's mean)"
            )
    return Text("\n".join(told) or "–")


def cell_text(cell: ComparisonCell, limit: int | None, named: Callable[[int], str] = str) -> Text:
    """Return what an attempt did in one row. `named` returns the name of another attempt by its number."""
    from rich.text import Text

    if cell.state == "missing":
        return Text("∅ no message here", style="dim")
    if cell.state == "same":
        return Text(f"= as {named(cell.against or 0)}", style="dim")
    if cell.state == "shared" and cell.role is None:
        return Text("≡", style="dim")
    shown = Text(_sign(cell, named), style="yellow" if cell.state == "differs" else "dim")
    if cell.text:
        shown.append("\n" + _cut(clean(cell.text), limit), style="default")
    for call in cell.calls:
        shown.append_text(_call(call, limit))
    return shown


def _sign(cell: ComparisonCell, named: Callable[[int], str]) -> str:

    if cell.state == "shared":
        return "≡ same for all"
    words = ", ".join(map(clean, cell.differences))
    return f"≠ from {named(cell.against)}: {words}" if cell.against else f"≠ {words or 'different'}"


def _call(call: ComparedCall, limit: int | None) -> Text:
    from rich.text import Text

    shown = Text(f"\n{'+ ' if call.new else ''}{clean(call.name)}", style="cyan")
    for one in call.arguments:
        style = "bold" if one.differs else "default"
        shown.append(f"\n{'≠' if one.differs else ' '} {clean(one.name)}={_cut(clean(one.text), limit)}", style=style)
    for name in call.gone:
        shown.append(f"\n− {clean(name)}", style="bold")
    if call.result is not None:
        style = "bold" if call.result_differs else "dim"
        shown.append(f"\n{'≠' if call.result_differs else '→'} {_cut(clean(call.result), limit)}", style=style)
    return shown


def _cut(text: str, limit: int | None) -> str:
    return text if limit is None or len(text) <= limit else f"{text[:limit]}… ({len(text) - limit} more, --full)"
