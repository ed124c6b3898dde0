"""`hone review`: pairs of trajectories, shown blind, of which a person chooses the better one.

Owns: prompting on a terminal, and how two trajectories look there. Refuses: which pairs wait
(`recorder.views.review.queue`), storing an answer (`recorder.views.review.human_labels`), and running without a
terminal.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click

from recorder.base.terminal import clean_line, console, echo, write_json
from recorder.base.terminal import show as print_shown
from recorder.commands.context import Context, run

if TYPE_CHECKING:
    from rich.console import RenderableType

    from recorder.store.database import Project
    from recorder.views.review.queue import QueueRequest
    from recorder.views.review.shapes import QueuedPair, ReviewQueue
    from recorder.views.review.trajectories import BlindPair

SHOWN_CHARS: Final = 1200  # of one text, without --full
_QUESTION: Final = "Which is better? a, b, same, skip, quit"
_SKIP: Final = "skip"
_QUIT: Final = "quit"
_KEYS: Final = ("a", "b", "same", _SKIP, _QUIT)
_SHORT: Final = {"=": "same", "s": "same", "q": _QUIT, "": _SKIP}


@click.command()
@click.option("--pairs", "most", default=10, show_default=True, type=click.IntRange(1), help="Most pairs to answer.")
@click.option("--alias", help="Only pairs of this alias.")
@click.option("--group", metavar="GROUP", help="Rank the trajectories of this group, pair by pair.")
@click.option(
    "--against",
    metavar="base|VERSION",
    help="Compare the live version's trajectories with another version's at the same tasks.",
)
@click.option("--as", "person", help="Your name, if several people share this machine.")
@click.option("--full", is_flag=True, help="Show long texts in full.")
@click.pass_obj
def review(
    context: Context,
    most: int,
    alias: str | None,
    group: str | None,
    against: str | None,
    person: str | None,
    full: bool,
) -> None:
    """Choose the better of two trajectories: blind, shuffled, the most useful pairs first.

    Groups on which judges disagree come first: a choice scores them. Then come the largest gains since the last
    version, trajectories that alarms name, and a random share. --against ends with how often the live version won.
    --json lists the pairs that wait.
    """
    if group is not None and against is not None:
        raise click.UsageError("--group and --against select different pairs: use one of them.")
    if not context.json and not _has_terminal():
        raise click.UsageError("a person answers this command: run it in a terminal. --json lists the pairs that wait.")

    async def work(project: Project) -> ReviewQueue:
        asked = await _asked(project, alias, group, against, person)
        return await _listed(project, asked) if context.json else await _ask(project, asked, most, full)

    found = run(context, work)
    if context.json:
        write_json(found)


def _has_terminal() -> bool:

    return sys.stdin.isatty() and console().is_terminal


async def _asked(
    project: Project, alias: str | None, group: str | None, against: str | None, person: str | None
) -> QueueRequest:
    from recorder.queue.groups.lookup import find_group
    from recorder.registry.keys import SOMEBODY
    from recorder.views.lists.short_ids import expand_id
    from recorder.views.review.queue import QueueRequest

    found = await find_group(project, await expand_id(project, group)) if group is not None else None
    return QueueRequest(person or SOMEBODY, alias, found, against)


async def _listed(project: Project, asked: QueueRequest) -> ReviewQueue:
    from recorder.views.review.queue import load_queue

    return await load_queue(project, asked)


async def _ask(project: Project, asked: QueueRequest, most: int, full: bool) -> ReviewQueue:
    """Ask until no pair waits, `most` are answered, or the person quits. Each answer is stored at once."""
    from recorder.views.review.human_labels import ReviewAnswer, record_choice
    from recorder.views.review.queue import load_queue
    from recorder.views.review.trajectories import load_blind_pair

    answered = 0
    while True:
        found = await load_queue(project, asked, limit=1)
        if answered == most or not found.entries:
            break
        [entry] = found.entries
        two = await load_blind_pair(project.store, entry.first, entry.second)
        print_shown(*_shown(entry, two, f"{answered + 1} of at most {most}", None if full else SHOWN_CHARS))
        said = _said()
        if said == _QUIT:
            break
        if said == _SKIP:
            asked = replace(asked, passed=frozenset({*asked.passed, frozenset((entry.first, entry.second))}))
            continue
        await record_choice(project, entry.first, entry.second, ReviewAnswer(said), by=asked.person)
        answered += 1
    print_shown(*_ended(found, answered))
    return found


def _said() -> str:
    """Return the person's answer for a pair; the end of input means quit."""
    while True:
        try:
            word = click.prompt(_QUESTION, default="", show_default=False).strip().lower()
        except click.Abort:
            echo()
            return _QUIT
        word = _SHORT.get(word, word)
        if word in _KEYS:
            return word
        echo(f"Answer one of {', '.join(_KEYS)}.")


def _shown(entry: QueuedPair, two: BlindPair, place: str, limit: int | None) -> Iterator[RenderableType]:
    from rich.text import Text

    from recorder.views.lists.short_ids import shorten_id

    yield Text()
    group = entry.external_id or shorten_id(entry.group_id)
    yield clean_line(f"Pair {place}", "bold").append_text(
        clean_line(f"  {entry.alias or 'no alias'} · group {group}", "dim")
    )
    yield clean_line(entry.about, "dim")
    yield from _begun(two, limit)
    yield _table(two, limit)
    left = [f"{name}: {turns} more messages" for name, turns in zip("AB", two.turns_not_shown, strict=True) if turns]
    if left:
        yield clean_line(f"not shown of {', '.join(left)}", "yellow")


def _begun(two: BlindPair, limit: int | None) -> Iterable[RenderableType]:
    from recorder.commands.compare import cell_text

    if two.beginning:
        yield clean_line(f"both begin with the same {len(two.beginning)} messages:", "dim")
    for cell in two.beginning:
        yield clean_line(cell.role or "", "dim")
        yield cell_text(cell, limit)


def _table(two: BlindPair, limit: int | None) -> RenderableType:
    from rich import box
    from rich.table import Table

    from recorder.commands.compare import cell_text
    from recorder.views.review.trajectories import NAMES

    made = Table(box=box.SQUARE, border_style="dim", padding=(0, 1), show_lines=True, expand=True)
    made.add_column("", style="dim")
    for name in NAMES:
        made.add_column(name, ratio=1, overflow="fold")
    for at, row in enumerate(two.rows, len(two.beginning) + 1):
        made.add_row(str(at), *(cell_text(cell, limit, lambda number: NAMES[number - 1]) for cell in row))
    if not two.rows:
        made.add_row("", "≡ both are equal", "≡")
    return made


def _ended(found: ReviewQueue, answered: int) -> Iterator[RenderableType]:

    kept = f"{answered} answer{'' if answered == 1 else 's'} stored."
    yield clean_line(kept if answered or found.entries else f"{kept} No pair waits for you.", "bold")
    if found.disputed:
        groups = f"{found.disputed} group{' waits' if found.disputed == 1 else 's wait'}"
        yield clean_line(
            f"{groups} for a person because judges disagree: a choice scores the group about a minute after the last.",
            "dim",
        )
    if found.against is not None:
        yield clean_line(found.against.sentence())
