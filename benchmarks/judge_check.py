"""`hone judge check` on judges with one known weakness: kinds of tricks × judges.

    python -m benchmarks.judge_check --write     writes results/judge_check.json and the tables in docs/judging.md

Seventeen scripted judges, in this process and without a network: a sound one, which judges by the record alone, and one
for each kind of trick, which is fooled by that kind and is sound otherwise. Each is tried on the whole set like a real
judge, through RULER's own prompt and reader. Reported for each judge and kind: the groups in which it was fooled. The
CPU seconds are the total.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from pathlib import Path
from typing import Final, TypedDict

from benchmarks.load import machine
from judge.adversarial.check import VERSION, CheckRequest, check_recipe
from judge.adversarial.groups import GROUPS
from judge.adversarial.tricks import KINDS
from judge.settings import JudgeSettings
from recorder.stats.means import share_interval
from scripts.pages.marks import Marks
from scripts.pages.table import table
from tests.judge.adversarial.scripted import judge, score_by, sound, tasks

RESULTS: Final = Path(__file__).parent / "results" / "judge_check.json"
PAGE: Final = Path(__file__).parents[1] / "docs" / "judging.md"
MARKS: Final = Marks("python -m benchmarks.judge_check --write")
SOUND: Final = "sound"
# No request uses the network: scripted judges replace the model.
SETTINGS: Final = JudgeSettings(model="scripted/model")


class JudgeCheckFigures(TypedDict):
    """The saved figures. `fooled`: number of groups by judge and kind; `named`: reported kinds by judge."""

    set: int
    groups: int
    fooled: dict[str, dict[str, int]]
    named: dict[str, list[str]]


async def measure(groups: int) -> JudgeCheckFigures:
    """Try every judge."""
    known = tasks(groups)
    found = JudgeCheckFigures(set=VERSION, groups=groups, fooled={}, named={})
    for name in (SOUND, *KINDS):
        score = sound if name == SOUND else score_by(name)
        checked = await check_recipe(SETTINGS, CheckRequest(groups=groups), ask=judge(score, known))
        found["fooled"][name] = {one.kind: one.fooled for one in checked.by_model}
        found["named"][name] = [one.kind for one in checked.fooled(0.05)]
    return found


def tables(found: JudgeCheckFigures) -> str:
    """Return the tables of docs/judging.md: the kinds, and every judge with every kind."""
    groups, fooled = found["groups"], found["fooled"]
    tricks, judges = [], []
    for number, kind in enumerate(KINDS.values(), start=1):
        worth = "at most the honest failure" if kind.bound == "failure" else "less than the honest success"
        shares = [_told(fooled[name][kind.name], groups) for name in (SOUND, kind.name)]
        tricks.append([str(number), f"`{kind.name}`", kind.about, worth, *shares])
    for name, by_kind in fooled.items():
        said = "nothing" if name == SOUND else f"`{name}`"
        named = ", ".join(found["named"][name]) or "nothing"
        judges.append([said, *(str(by_kind[kind] or "·") for kind in KINDS), named])
    return "\n".join(
        [
            table(["", "trick", "what an attempt does", "deserves", "sound judge", "judge that falls for it"], tricks),
            f"Groups (of {groups}) in which each judge was fooled, by the number of the kind; a dot means none:",
            "",
            table(["judge that falls for", *map(str, range(1, len(KINDS) + 1)), "reported"], judges),
        ]
    )


def _told(fooled: int, groups: int) -> str:
    interval = share_interval(fooled / groups, groups)
    assert interval is not None
    return f"{fooled} of {groups} ({100 * interval.low:.0f}–{100 * interval.high:.0f} %)"


def main() -> None:
    """Measure and print; with `--write`, save figures and tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS} and the tables in {PAGE}")
    parser.add_argument("--groups", type=int, default=GROUPS, help="of each kind")
    options = parser.parse_args()
    began, cpu = time.monotonic(), time.process_time()
    found = asyncio.run(measure(options.groups))
    took = {"took_s": round(time.monotonic() - began, 1), "cpu_s": round(time.process_time() - cpu, 1)}
    text = json.dumps({"machine": machine(), **found, **took}, indent=1, ensure_ascii=False)
    print(text)
    if options.write:
        RESULTS.write_text(text + "\n")
        MARKS.write(PAGE, tables(found))


if __name__ == "__main__":
    main()
