"""The demo's result: success by version, one conversation before and after, the locations of files, summary.json.

Owns reading and printing it. Every figure comes from the campaign's events and from the store. Success is
`checks.solved`, by the orders database.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from examples.helpdesk.checks import is_right, last_words
from examples.helpdesk.scenarios import DemoFiles
from recorder.queue import campaigns
from recorder.settings import RecorderSettings
from recorder.states import Purpose
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store
from recorder.views.trajectories.shapes import TrajectoryView
from recorder.views.trajectories.transcripts import load_group

PROJECT = "default"
_BAR = 40


@dataclass(frozen=True, slots=True)
class VersionSuccess:
    """A version's success on the held-out orders, one attempt each, at temperature 1."""

    version: str
    success: float
    attempts: int
    low: float  # of Wilson's 95 % interval
    high: float


@dataclass(frozen=True, slots=True)
class Step:
    """One step, with the results of the attempts that it trained on."""

    step: int
    sampled_by: str
    success: float
    reward: float
    seconds: dict[str, float]


@dataclass(frozen=True, slots=True)
class Ending:
    """The data of the demo's result."""

    seconds: float
    before: VersionSuccess
    after: VersionSuccess
    steps: list[Step]
    trained: int
    left_out: dict[str, int]
    logprob_difference: list[float]  # mean |engine − trainer| of each step
    conversation: tuple[TrajectoryView, TrajectoryView] | None
    store: str  # the store: a file, or a URL without its password


def wilson(share: float, attempts: int, z: float = 1.96) -> tuple[float, float]:
    """Return Wilson's interval of a share of `attempts` independent attempts (95 % by default)."""
    if attempts == 0:
        return 0.0, 1.0
    middle = share + z * z / (2 * attempts)
    half = z * math.sqrt(share * (1 - share) / attempts + z * z / (4 * attempts * attempts))
    scale = 1 + z * z / attempts
    # rounding must not move a bound beyond the share itself
    return min(share, max(0.0, (middle - half) / scale)), max(share, min(1.0, (middle + half) / scale))


async def read_ending(data: Path, recording: RecorderSettings, seconds: float) -> Ending:
    """Read the campaign's events and its first and last validation."""
    events = read_events(data)
    validated = [e for e in events if e["event"] == "validation"]
    steps = [e for e in events if e["event"] == "step"]
    ended = next(e for e in reversed(events) if e["event"] == "campaign_ended")
    store = await open_store(data, recording, migrate=False)
    try:
        conversation = await _before_and_after(store, validated[0]["step"], validated[-1]["step"])
    finally:
        await store.close()
    return Ending(
        seconds=seconds,
        before=_measured(validated[0]),
        after=_measured(validated[-1]),
        steps=[Step(e["step"], e["sampled_by"], e["success"], e["reward"], e["seconds"]) for e in steps],
        trained=ended["trained"],
        left_out=ended["left_out"],
        logprob_difference=[e["metrics"]["logprob_gap"] for e in steps if "logprob_gap" in e["metrics"]],
        conversation=conversation,
        store=str(store.url.database) if store.is_sqlite else store.url.render_as_string(hide_password=True),
    )


def read_events(data: Path) -> list[dict[str, Any]]:
    """Return the events of the data folder's only campaign."""
    [path] = (data / "campaigns").glob("*/events.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _measured(event: dict[str, Any]) -> VersionSuccess:
    low, high = wilson(event["success"], event["attempts"])
    return VersionSuccess(event["version"], event["success"], event["attempts"], low, high)


async def _before_and_after(
    store: Store, first_step: int, last_step: int
) -> tuple[TrajectoryView, TrajectoryView] | None:
    """Return one held-out order that the first version answered wrongly and the last one correctly, or None."""
    campaign = await campaigns.find_campaign(Project(store, PROJECT), "helpdesk")
    assert campaign is not None
    first = await _validation(store, campaign.id, first_step)
    last = await _validation(store, campaign.id, last_step)
    for scenario in sorted(first.keys() & last.keys()):
        before, after = await _only_member(store, first[scenario]), await _only_member(store, last[scenario])
        if before and after and not _solved(before) and _solved(after):
            return before, after
    return None


def _solved(trajectory: TrajectoryView) -> bool:
    assert trajectory.scenario is not None
    reference = trajectory.scenario.reference
    return is_right(last_words(trajectory.messages), reference["order_id"], reference["day"])


async def _validation(store: Store, campaign_id: str, step: int) -> dict[str, str]:
    """Scenario → group of the validation after `step` steps."""
    groups = await campaigns.group_states(store, campaign_id, step, Purpose.VAL)
    return {g.scenario_external_id: g.group_id for g in groups}


async def _only_member(store: Store, group_id: str) -> TrajectoryView | None:
    members = (await load_group(store, group_id)).members
    return members[0] if len(members) == 1 and members[0].messages else None


def write_summary(ending: Ending, data: Path) -> Path:
    """Write summary.json and return its path."""
    summary = {
        "success_before": ending.before.success,
        "success_after": ending.after.success,
        "seconds": round(ending.seconds, 1),
        "before": asdict(ending.before),
        "after": asdict(ending.after),
        "steps": len(ending.steps),
        "versions": list(dict.fromkeys([*(step.sampled_by for step in ending.steps), ending.after.version])),
        "success_by_step": [asdict(step) for step in ending.steps],
        "trained_trajectories": ending.trained,
        "left_out_trajectories": ending.left_out,
        "mean_logprob_difference_engine_trainer": ending.logprob_difference,
    }
    path = data / "summary.json"
    path.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return path


def show(ending: Ending, data: Path, summary: Path, files: DemoFiles, console: Console) -> None:
    """Print the result."""
    console.rule("[bold]The agent's success")
    console.print(_curve(ending))
    for name, measured in (("before", ending.before), ("after", ending.after)):
        console.print(
            f"{name:>7}: [bold]{measured.success:.1%}[/bold] of {measured.attempts} held-out orders "
            f"({measured.low:.1%} to {measured.high:.1%}), {escape(measured.version)}"
        )
    console.print(f"   took: {ending.seconds:.0f} s, engine start included")
    _show_conversation(ending, console)
    _show_ledger(ending, console)
    _show_places(ending, data, summary, files, console)


def _curve(ending: Ending) -> Table:
    table = Table("version", "success in its attempts", box=None, padding=(0, 2))
    for step in ending.steps:
        table.add_row(escape(step.sampled_by), f"{'█' * round(step.success * _BAR):<{_BAR}} {step.success:.0%}")
    return table


def _show_conversation(ending: Ending, console: Console) -> None:
    if ending.conversation is None:
        return
    for name, trajectory in zip(("before", "after"), ending.conversation, strict=True):
        console.rule(f"[bold]The same question, {name}")
        for message in trajectory.messages[1:]:
            console.print(_line(message), markup=False)


def _line(message: Any) -> str:
    calls = message.get("tool_calls") or ()
    texts = [message.get("content") or ""] if message.get("content") else []
    texts += [f"{call['function']['name']}({call['function']['arguments']})" for call in calls]
    # a transcript is untrusted text: control characters are shown, not obeyed
    text = " ".join(texts).encode("unicode_escape").decode("ascii")
    return f"{message['role']:>10}  {text}"


def _show_ledger(ending: Ending, console: Console) -> None:
    console.rule("[bold]Training data")
    console.print(f"trained: {ending.trained} trajectories")
    for reason, count in sorted(ending.left_out.items(), key=lambda item: -item[1]):
        console.print(f"excluded: {count} ({escape(reason)})")


def _show_places(ending: Ending, data: Path, summary: Path, files: DemoFiles, console: Console) -> None:
    console.rule("[bold]Files")
    places: Sequence[tuple[str, Path | str]] = (
        ("all calls, with token ids", ending.store),
        ("the versions", data / "adapters"),
        ("the logs", data / "logs"),
        ("the orders", files.database),
        ("these numbers", summary),
    )
    for what, path in places:
        console.print(f"{what:>28}  {path}", soft_wrap=True)
    console.print(
        "\nYour own agent: write a hone.toml with your model, start `hone up`, and set the agent's base URL. "
        "Hone then records, judges and trains on its trajectories like these. docs/start.md shows how.",
        soft_wrap=not console.is_terminal,
    )
