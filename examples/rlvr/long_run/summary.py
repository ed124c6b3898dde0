"""What a long run says: a line for each measurement, its end, and the tables of the committed runs.

    python -m examples.rlvr.long_run.summary [FOLDER]    # prints the tables of a data folder's run, or of the committed
    python -m examples.rlvr.long_run.summary --write     # writes those of the committed runs into the README

Owns: the texts and tables. Refuses: computing (`verdict`), and the picture (`picture`).
"""

from __future__ import annotations

import argparse
import contextlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from examples.rlvr.long_run.phases import FORMS
from examples.rlvr.long_run.points import FILE, LongRunRecord, Point, read_record
from examples.rlvr.long_run.verdict import FormFall, find_collapse, form_falls
from scripts.pages.marks import Marks
from scripts.pages.table import table as markdown

HERE: Final = Path(__file__).parent
COMMITTED: Final = HERE / "measured"
README: Final = HERE.parent / "README.md"
PICTURE: Final = HERE.parent / "long_run.svg"  # beside the README: docs show it
MARKS: Final = Marks("python -m examples.rlvr.long_run.summary --write")
NONE_YET: Final = "No long run is committed yet."


def tell_point(point: Point) -> str:
    """Return a measurement as a line."""
    forms = ", ".join(f"{form} {point.forms[form].success:.1%}" for form in FORMS)
    drift = f"; KL to the base {point.drift['kl_base']:.3f}" if point.drift else ""
    return f"After {point.step} steps ({point.version}): {forms}{drift}"


def tell_end(record: LongRunRecord, data: Path, *, over: bool) -> None:
    """Print how a part ended, and what the run shows so far; draw the picture if matplotlib is installed."""
    done = record.points[-1].step if record.points else 0
    print(f"\n{sum(record.minutes):.0f} minutes so far, measured after {done} of {record.phases[-1].last} steps.")
    for line in verdict_lines(record):
        print(f"  {line}")
    if not over:
        print("  The time of this part is over: the same command goes on.")
    if record.points:
        draw(record, data / "curve.svg")
    print(f"  {data / FILE}, {data / 'curve.svg'}")


def draw(record: LongRunRecord, file: Path) -> None:
    """Draw the run if matplotlib is installed: it is part of the development extra."""
    with contextlib.suppress(ModuleNotFoundError):
        from examples.rlvr.long_run.picture import write

        write(record, file)


def verdict_lines(record: LongRunRecord) -> list[str]:
    """Return what the run shows: each form's fall, and whether the model collapsed."""
    falls = [_fall_line(one) for one in form_falls(record.points, record.phases)]
    collapse = find_collapse(record.points)
    if collapse:
        return [*falls, f"The model collapsed: mean success halved by the measurements after {_steps(collapse)} steps."]
    return [*falls, "No collapse."]


def _fall_line(one: FormFall) -> str:
    own = f"{one.form}: {one.own:.1%} at the end of its own phase"
    if one.lowest is None or one.fall is None:
        return f"{own}; too few measurements after it"
    kept = "kept" if one.kept else "NOT KEPT"
    return f"{own}, at least {one.lowest:.1%} afterwards ({_points(one.fall)} points): {kept}"


def _points(fall: float) -> str:
    """Return a fall as a difference in points, without a negative zero."""
    return f"{round(-100 * fall, 1) + 0.0:+.1f}"


def _steps(steps: list[int]) -> str:
    return ", ".join(map(str, steps))


def points_table(record: LongRunRecord) -> str:
    """Return all measurements in Markdown."""
    head = ("steps", "trained form", *FORMS, "KL to the base", "KL to the parent", "entropy", "tokens an answer")
    return markdown(head, [_row(one) for one in record.points])


def _row(point: Point) -> list[str]:
    success = [f"{one.success:.1%} ({one.low:.1%}–{one.high:.1%})" for one in map(point.forms.__getitem__, FORMS)]
    return [
        str(point.step),
        point.phase.partition("-")[2] if point.step else "none yet",
        *success,
        _figure(point.drift, "kl_base", 3),
        _figure(point.drift, "kl_parent", 5),
        " / ".join(f"{point.forms[form].entropy:.3f}" for form in FORMS),
        " / ".join(f"{point.forms[form].tokens:.0f}" for form in FORMS),
    ]


def _figure(drift: Mapping[str, float], name: str, decimals: int) -> str:
    return f"{drift[name]:.{decimals}f}" if name in drift else "none"


def falls_table(record: LongRunRecord) -> str:
    """Return each form's fall in Markdown."""
    head = (
        "form",
        "last five of its own phase",
        "lowest mean of three afterwards",
        "after steps",
        "difference in points",
    )
    rows = []
    for one in form_falls(record.points, record.phases):
        fall, lowest = one.fall, one.lowest
        told = ["none", "none", "none"] if fall is None or lowest is None else [
            f"{lowest:.1%}", _steps(list(one.steps)), _points(fall)
        ]  # fmt: skip
        rows.append([one.form, f"{one.own:.1%}", *told])
    return markdown(head, rows)


def committed_runs() -> dict[str, LongRunRecord]:
    """Return the committed runs by the names of their files."""
    return {path.stem: read_record(path) for path in sorted(COMMITTED.glob("*.json"))}


def page_part(runs: Mapping[str, LongRunRecord]) -> str:
    """Return what the README says of the committed runs."""
    if not runs:
        return NONE_YET
    return "\n\n".join(_run_part(name, record) for name, record in runs.items())


def _run_part(name: str, record: LongRunRecord) -> str:
    told = [
        f"**Run `{name}`**: seed {record.seed}, rehearsal {record.rehearsal:g}, {sum(record.minutes):.0f} minutes in "
        f"{len(record.minutes)} parts.",
        *verdict_lines(record)[-1:],
        _tell_alarms(record),
    ]
    return "\n\n".join([" ".join(told), falls_table(record).strip(), points_table(record).strip()])


def _tell_alarms(record: LongRunRecord) -> str:
    """Each rule once: with its first alarm, and how many it had."""
    rules = Counter(one.rule for one in record.alarms)
    firsts = {one.rule: one for one in reversed(record.alarms)}
    told = [
        f"`{rule}` {f'{count} times, first ' if count > 1 else ''}after step {firsts[rule].step} ({firsts[rule].words})"
        for rule, count in rules.items()
    ]
    return f"Alarms: {'; '.join(told)}." if told else "No alarm."


def main() -> None:
    """Print the tables, or write them."""
    parser = argparse.ArgumentParser(description="Tables of long runs.")
    parser.add_argument("folder", type=Path, nargs="?", help="the data folder of a run (default: the committed runs)")
    parser.add_argument("--write", action="store_true", help="write the committed runs into the README, and draw them")
    given = parser.parse_args()
    runs = {given.folder.name: read_record(given.folder / FILE)} if given.folder else committed_runs()
    if not given.write or given.folder:
        print(page_part(runs))
        return
    MARKS.write(README, page_part(runs))
    for name, record in runs.items():
        draw(record, PICTURE.with_stem(f"long_run-{name}"))


if __name__ == "__main__":
    main()
