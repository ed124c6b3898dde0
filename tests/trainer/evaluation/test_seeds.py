"""How far an evaluation is, in a log: a line for each tenth of a seed, and what a person should know."""

from __future__ import annotations

import io

from trainer.evaluation.runner import SeedProgress
from trainer.progress import Notice, PhaseStatus, choose_progress


def test_a_log_has_a_line_for_each_tenth_of_a_seed() -> None:
    out = io.StringIO()
    with choose_progress(as_json=False, out=out) as shown:
        seeds = SeedProgress(shown, 2)
        seeds.tell(PhaseStatus(0, "starting"))
        for done in range(41):
            seeds.tell(PhaseStatus(1, "validating", done, 40))
        seeds.tell(Notice("the judge is away", warning=True))
        seeds.tell(PhaseStatus(2, "judging", 3, 3))
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
    with choose_progress(as_json=False, out=out) as shown:
        SeedProgress(shown, 1).tell(PhaseStatus(1, "judging", 0, 0))
    assert out.getvalue() == ""
