"""The three forms that a prompt can ask for: a note, a numbered list, a JSON object.

Owns: the interface of a form, drawing one, and recognising a prompt's form. Each form owns its sentences. Refuses:
answers in a form (`examples.rlvr.making`), and verdicts.
"""

from __future__ import annotations

import random
from typing import Final

from examples.rlvr.forms.form import Form
from examples.rlvr.forms.note import Note
from examples.rlvr.forms.record import Record
from examples.rlvr.forms.things import Things

FORMS: Final[tuple[type[Form], ...]] = (Note, Things, Record)

__all__ = ["FORMS", "Form", "Note", "Record", "Things", "draw", "read"]


def draw(rng: random.Random) -> Form:
    """Return one of the forms, with random arguments."""
    return rng.choice(FORMS).draw(rng)


def read(prompt: str) -> Form:
    """Parse a prompt; return its form.

    Raises:
        ValueError: the prompt is not of this example.
    """
    for form in FORMS:
        if (found := form.read(prompt)) is not None:
            return found
    raise ValueError(f"this is no prompt of examples/rlvr (see examples.rlvr.forms): {prompt!r:.200}")
