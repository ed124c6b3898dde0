"""The phases of a long run, and the prompts of each form.

Owns: which form is trained when, and three lists of each form's prompts: to learn from, held out, and for the opening
traffic. No prompt is in two lists. Refuses: running (`examples.rlvr.long_run.run`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from examples.rlvr.forms import Form, Note, Record, Things
from examples.rlvr.tasks import forms, task

ORDER: Final[tuple[type[Form], ...]] = (Note, Record, Things, Note)
STEPS: Final = 400
EVERY: Final = 20  # steps between measurements
LEARN: Final = 400  # prompts of a form to learn from
HELD_OUT: Final = 200
OPENING: Final = 54  # prompts of a form: a drift set of 32 members needs four times as many tasks in all


@dataclass(frozen=True, slots=True)
class Phase:
    """A campaign of the run: its name, the form that it trains, the steps before it, and its own steps."""

    name: str
    form: str
    first: int
    steps: int

    @property
    def last(self) -> int:
        """The number of steps of the run when the phase is over."""
        return self.first + self.steps


@dataclass(frozen=True, slots=True)
class Prompts:
    """Files with the prompts to learn from, by form; the file with all held-out prompts; prompts for the opening."""

    learn: Mapping[str, Path]
    held_out: Path
    opening: Sequence[str]


def form_name(form: Form | type[Form]) -> str:
    """Return the name of a form: `note`, `record` or `things`."""
    return (form if isinstance(form, type) else type(form)).__name__.lower()


FORMS: Final = tuple(dict.fromkeys(map(form_name, ORDER)))


def plan_phases(steps: int = STEPS, every: int = EVERY) -> tuple[Phase, ...]:
    """Return the phases, all of the same length.

    Raises:
        ValueError: no phase of whole measurements has a quarter of these steps.
    """
    each, rest = divmod(steps, len(ORDER))
    if rest or each < 1 or each % every:
        wanted = len(ORDER) * every
        raise ValueError(f"{steps} steps are no {len(ORDER)} phases, measured every {every} steps: give n × {wanted}")
    return tuple(
        Phase(f"{number}-{form_name(form)}", form_name(form), (number - 1) * each, each)
        for number, form in enumerate(ORDER, start=1)
    )


def write_prompts(folder: Path, seed: int, learn: int = LEARN, held_out: int = HELD_OUT) -> Prompts:
    """Write the lists of a seed as task files, the same for the same seed and counts."""
    drawn = draw_prompts(seed, held_out + learn + OPENING)
    folder.mkdir(parents=True, exist_ok=True)
    found = Prompts(
        {name: folder / f"learn-{name}.jsonl" for name in FORMS},
        folder / "held-out.jsonl",
        [form.prompt() for name in FORMS for form in drawn[name][held_out + learn :]],
    )
    _write(found.held_out, [form for name in FORMS for form in drawn[name][:held_out]], first=1)
    for name, path in found.learn.items():
        _write(path, drawn[name][held_out : held_out + learn], first=len(FORMS) * held_out + 1)
    return found


def draw_prompts(seed: int, each: int) -> dict[str, list[Form]]:
    """Return different prompts of each form, as many of each."""
    drawn: dict[str, list[Form]] = {name: [] for name in FORMS}
    for form in forms(seed):
        if len(own := drawn[form_name(form)]) < each:
            own.append(form)
        if all(len(some) == each for some in drawn.values()):
            break
    return drawn


def _write(path: Path, some: Iterable[Form], first: int) -> None:
    """Write prompts whose numbers begin with `first`: no two parts of a campaign may share a number."""
    lines = [json.dumps(task(number, form)) + "\n" for number, form in enumerate(some, start=first)]
    path.write_text("".join(lines), encoding="utf-8")
