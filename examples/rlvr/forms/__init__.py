"""The three forms that a prompt can ask for: a note, a numbered list, a JSON object.

Owns: the interface of a form, drawing one, and recognising the form that a prompt asks for. Each form owns its own
sentences. Refuses: good or bad answers in a form (`examples.rlvr.making`), and verdicts.
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
    """One of the forms, with random arguments."""
    return rng.choice(FORMS).draw(rng)


def read(prompt: str) -> Form:
    """What a prompt asks for.

    Raises:
        ValueError: it is no prompt of ours.
    """
    for form in FORMS:
        if (found := form.read(prompt)) is not None:
            return found
    raise ValueError(f"this is no prompt of examples/rlvr (see examples.rlvr.forms): {prompt!r:.200}")
