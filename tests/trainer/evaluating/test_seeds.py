"""How far an evaluation is, in a log: a line for each tenth of a seed, and what a person should know."""

from __future__ import annotations

import io

from trainer.evaluating.evaluation import Seeds
from trainer.progress import Said, Status, progress


def test_a_log_has_a_line_for_each_tenth_of_a_seed() -> None:
    out = io.StringIO()
    with progress(as_json=False, out=out) as shown:
        seeds = Seeds(shown, 2)
        seeds.tell(Status(0, "starting"))
        for done in range(41):
            seeds.tell(Status(1, "validating", done, 40))
        seeds.tell(Said("the judge is away", warning=True))
        seeds.tell(Status(2, "judging", 3, 3))
    lines = out.getvalue().splitlines()
    assert lines[0] == "seed 1 of 2 · attempting 0/40: 0 %"
    assert lines[3] == "seed 1 of 2 · attempting 12/40: 30 %"
    assert lines[10:] == [
        "seed 1 of 2 · attempting 40/40: 100 %",
        "the judge is away",
        "seed 2 of 2 · judging 3/3: 100 %",
    ]


def test_an_empty_round_has_no_share() -> None:
    out = io.StringIO()
    with progress(as_json=False, out=out) as shown:
        Seeds(shown, 1).tell(Status(1, "judging", 0, 0))
    assert out.getvalue() == ""
