"""A paused campaign: what is shown of it, and how to resume it. Pure.

Owns: the attempts with the largest gain and the reward part behind it, the text on how to resume, and the settings that
changed before a resume. Refuses: when to pause (`trainer.campaign.health`), and which version stays in service.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from recorder.queue.judging.scores import REWARD, NewPart, StoredScore
from recorder.views.campaigns.events import SettingChanged

Evidence = Mapping[str, Any]  # {"trajectory", "reward", "part"}
LoadTopAttempts = Callable[[int], Awaitable[Sequence[Evidence]]]  # of a step
SHOWN: Final = 3
# Settings of where and how fast a campaign runs, without effect on its result.
_OF_THE_PLACE: Final = frozenset({"name", "alias", "python", "cwd", "agent_env", "concurrency", "lease_s"})
_LONGEST: Final = 500  # characters of a value


def most_gained_attempts(scores: Iterable[StoredScore]) -> list[Evidence]:
    """The attempts with the highest rewards above their group's mean, and the part behind most of it."""
    found = [one for score in scores for one in _gains(score)]
    found.sort(key=lambda one: one[0], reverse=True)
    return [evidence for _, evidence in found[:SHOWN]]


def _gains(score: StoredScore) -> Iterator[tuple[float, Evidence]]:
    rewards = {p.trajectory_id: p.value for p in score.parts if p.part == REWARD and p.value is not None}
    if not rewards:
        return
    mean, paid = statistics.fmean(rewards.values()), _paid_by(score.parts)
    for id_, reward in rewards.items():
        yield reward - mean, {"trajectory": id_, "reward": reward, "part": paid.get(id_)}


def _paid_by(parts: Sequence[NewPart]) -> dict[str, str]:
    """For each attempt, the part that is highest above its group's mean, by weight."""
    by_part: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for part in parts:
        if part.part != REWARD and part.value is not None and part.weight:
            by_part[part.part][part.trajectory_id] = part.value * part.weight
    best: dict[str, tuple[float, str]] = {}
    for name, values in by_part.items():
        mean = statistics.fmean(values.values())
        for id_, value in values.items():
            best[id_] = max(best.get(id_, (float("-inf"), "")), (value - mean, name))
    return {id_: name for id_, (_, name) in best.items()}


def how_to_resume(campaign: str, live: str) -> str:
    """The text on how to react to a pause."""
    return (
        f"paused: {live} is in service, and nothing is lost. Look at the attempts above (`hone show ID`). If they "
        "cheat, add a rule or change the judge recipe, rescore the groups with `hone score --all`, and resume with "
        f"`hone train --resume {campaign}`. To ignore a rule of [campaign.health] that is wrong here, set it to "
        'then = "note" (docs/health.md).'
    )


def changed_settings(step: int, was: Mapping[str, Any], now: Mapping[str, Any]) -> list[SettingChanged]:
    """The campaign's settings that changed."""
    names = [name for name in now if name not in _OF_THE_PLACE and was.get(name) != now[name]]
    return [SettingChanged(step, f"campaign.{name}", _shown(was.get(name)), _shown(now[name])) for name in names]


def changed_recipe(step: int, was: Mapping[str, Any], now: Mapping[str, Any]) -> list[SettingChanged]:
    """The parts of the judge recipe that changed."""
    names = [name for name in now if was.get(name) != now[name]]
    return [SettingChanged(step, f"judge.{name}", _shown(was.get(name)), _shown(now[name])) for name in names]


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
