"""The evidence of a decision about a version, in sentences: each stored figure, beside its limit.

Owns: these sentences. Pages, `hone versions`, `/hone/v1` and the question before a move show the same ones. Pure, but
for `list_decisions`. Refuses: measuring, limits, and deciding (`proxy.gate`, which stores the limits with the figures).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from recorder.registry import moves
from recorder.registry.moves import VersionMove
from recorder.states import VersionState
from recorder.store.database import Project

LIVE: Final = "the live version"
# What a code of a version that passed its gate means. Details follow the code in `VersionMove.why`.
PASSED: Final[Mapping[str, str]] = {
    "sane": "Its answers to recorded first turns are sane.",
    "nothing_recorded": "No agent had called yet: its files, the loading and the probe decided.",
    "unanswered": "The live version could not answer the first turns either: files, loading and probe decided.",
    "not_asked_in_time": "The engine was too busy to answer first turns in time: files, loading and probe decided.",
    "share_spent": "The campaign's gates had taken their share of its tokens: files, loading and probe decided.",
    "not_worse": "Its reward is shown to be no worse than the live version's.",
    "enough_tasks": "No figure shows it to be worse than the live version.",
}
_AGES: Final = ("day", "week")  # of earlier versions (`aliases.NAME.gate.earlier`)
_KL: Final[Mapping[str, str]] = {"kl_live": LIVE, "kl_base": "the base"}
# What a version does more often if it is worse by a share of a canary's trajectories.
_MORE_OFTEN: Final[Mapping[str, str]] = {
    "errors": "Its trajectories end in an error",
    "tool_failures": "Its tool calls fail",
}
_TIMES: Final[Mapping[str, str]] = {"length": "Its answers take", "latency": "Its calls take"}
_SAME: Final = 0.005  # a share that is rounded to 0 %


@dataclass(frozen=True, slots=True)
class EvidenceSentence:
    """One figure in words, with its limit. `within`: whether it keeps the limit; None: it has none."""

    text: str
    within: bool | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(VersionMove):
    """A decision about a version, with its evidence in sentences; empty if no figure was stored."""

    evidence: tuple[EvidenceSentence, ...]


async def list_decisions(
    project: Project, *, alias: str | None = None, version_ids: Collection[str] | None = None, limit: int = 100
) -> list[Decision]:
    """Return decisions about one alias's versions, some versions or all, newest first."""
    found = await moves.list_moves(project, alias=alias, version_ids=version_ids, limit=limit)
    return [explain_move(move) for move in found]


def explain_move(move: VersionMove) -> Decision:
    """Return a decision with its evidence."""
    fields = {name: getattr(move, name) for name in VersionMove.__slots__}
    return Decision(**fields, evidence=describe_evidence(move))


def describe_evidence(move: VersionMove) -> tuple[EvidenceSentence, ...]:
    """Return the evidence of a decision in sentences, what decided first."""
    return (*_outcome(move), *_answers(move), *_pairs(move), *_drift(move), *_canary(move), *_cost(move))


def _outcome(move: VersionMove) -> Iterator[EvidenceSentence]:
    """What the code means, and its details; nothing for a person's reason, which is shown beside the decision."""
    code, _, detail = (move.why or "").partition(": ")
    if move.move == VersionState.REJECTED and detail:
        yield EvidenceSentence(f"It was rejected: {_ended(detail)}")
    elif code in PASSED:
        yield EvidenceSentence(PASSED[code])
        if move.move == VersionState.GATED and detail:
            yield EvidenceSentence(f"Not everything was checked: {_ended(detail)}")


def _ended(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


# --- its answers to first turns


def _answers(move: VersionMove) -> Iterator[EvidenceSentence]:
    figures, limits = move.figures, move.limits
    if (broken := _number(figures, "not_finite")) is not None:
        yield EvidenceSentence(
            f"{broken:.0f} of its answers are empty or have no probabilities; none may.", broken == 0
        )
    if (times := _number(figures, "times_as_long")) is not None:
        yield _within_times(f"Its answers are {_longer(times, LIVE)}", times, _number(limits, "length_times"))
    own, live = _number(figures, "entropy"), _number(figures, "entropy_live")
    if own is not None and live is not None:
        most = _number(limits, "entropy_times")
        limit = f"; limit {most:g} ×, in either direction, unless by chance" if most is not None else ""
        text = f"Their entropy is {own:.3g} nats a token, that of {LIVE} {live:.3g}{limit}."
        is_near = most is not None and live / most <= own <= live * most
        yield EvidenceSentence(text, True if is_near else False if _code(move) == "entropy" else None)
    for name, other in _KL.items():
        if (value := _number(figures, name)) is not None:
            most = _number(limits, "kl_max")
            limit = f"; limit {most:g}" if most is not None else ""
            text = f"Their distance from {other} (KL) is {value:.3g} nats a token{limit}."
            yield EvidenceSentence(text, None if most is None else value <= most)


def _within_times(text: str, times: float, most: float | None) -> EvidenceSentence:
    if most is None:
        return EvidenceSentence(f"{text}.")
    return EvidenceSentence(f"{text}; limit {most:g} ×, in either direction.", 1 / most <= times <= most)


def _longer(times: float, other: str) -> str:
    """A ratio of lengths in words: `6 % longer than the live version's`."""
    if times >= 2 or times <= 0.5:
        return f"{times:.2g} × as long as {other}'s"
    if abs(times - 1) < _SAME:
        return f"as long as {other}'s"
    return f"{_percent(abs(times - 1))} {'longer' if times > 1 else 'shorter'} than {other}'s"


# --- pairs beside other versions


def _pairs(move: VersionMove) -> Iterator[EvidenceSentence]:
    figures, least = move.figures, _number(move.limits, "win_at_least")
    yield from _beside(move, LIVE, "behaviour", ("win_rate", "pairs", "success", "success_live"), least)
    for age in _AGES:
        number = _number(figures, f"version_{age}")
        other = f"the version of a {age} ago" if number is None else f"{move.alias}@{number:.0f}, a {age} old or older,"
        names = (f"win_rate_{age}", f"pairs_{age}", f"success_beside_{age}", f"success_{age}")
        yield from _beside(move, other, f"behaviour_{age}", names, least)


def _beside(
    move: VersionMove, other: str, code: str, names: tuple[str, str, str, str], least: float | None
) -> Iterator[EvidenceSentence]:
    rate, count, own, theirs = (_number(move.figures, name) for name in names)
    if count is not None and count == 0:
        yield EvidenceSentence(f"No pair was compared with {other.removesuffix(',')}.")
    if rate is None or not count:
        return
    if own is not None and theirs is not None:
        text = f"It succeeds at {_percent(own)} of {_many(count, 'held-out attempt')}; {other} at {_percent(theirs)}."
        yield EvidenceSentence(text)
    limit = f"; less than {_percent(least)}, beyond chance, rejects it" if least is not None else ""
    text = f"It wins {_percent(rate)} of {_many(count, 'pair')} beside {other.removesuffix(',')}, a tie half{limit}."
    yield EvidenceSentence(text, False if _code(move) == code else True if least is not None else None)


# --- the drift set, and what the checks took


def _drift(move: VersionMove) -> Iterator[EvidenceSentence]:
    score, count = _number(move.figures, "drift.score"), _number(move.figures, "drift.scored")
    if score is None or count is None:
        return
    before, most = _number(move.figures, "drift.score_before"), _number(move.limits, "forgetting_max")
    text = f"It scores {score:.3g} on {_many(count, 'task')} of the drift set"
    text += f", where an ancestor scored {before:.3g}" if before is not None else ""
    limit = f"; a fall of more than {most:g} below an ancestor rejects it" if most is not None else ""
    has_fallen = _code(move) == "forgetting"
    yield EvidenceSentence(f"{text}{limit}.", False if has_fallen else True if most is not None else None)


def _cost(move: VersionMove) -> Iterator[EvidenceSentence]:
    asked, tokens = _number(move.figures, "gate_questions"), _number(move.figures, "gate_tokens")
    seconds = _number(move.figures, "gate_s")
    parts = [
        *([] if asked is None else [f"asked {_many(asked, 'first turn')}"]),
        *([] if tokens is None else [f"sampled {tokens:,.0f} tokens"]),
        *([] if seconds is None else [f"took {seconds:.3g} s"]),
    ]
    if parts:
        yield EvidenceSentence(f"The gate {', '.join(parts[:-1])}{' and ' if parts[1:] else ''}{parts[-1]}.")


# --- a canary, or a promoted version that is watched


def _canary(move: VersionMove) -> Iterator[EvidenceSentence]:
    worse = move.figures.get("worse_by")
    is_worse = set(map(str, worse)) if isinstance(worse, list) else set[str]()
    for name in ("reward", *_MORE_OFTEN, *_TIMES):
        seen = move.figures.get(name)
        if isinstance(seen, Mapping) and (text := _seen(name, seen)) is not None:
            yield EvidenceSentence(text, name not in is_worse)


def _seen(name: str, seen: Mapping[str, Any]) -> str | None:
    """What a comparison by trajectories showed. `value`: the mean of (1 + difference) / 2, where more is better."""
    value, tasks, tolerated = (_number(seen, key) for key in ("value", "tasks", "tolerated"))
    if value is None or tasks is None:
        return None
    difference, over = 2 * value - 1, f"over {_many(tasks, 'task')}"
    if name == "reward":
        how = "equal to" if abs(difference) < _SAME else f"{abs(difference):.2g} {_higher(difference)} than"
        limit = f"; a fall of {tolerated:g} is tolerated" if tolerated is not None else ""
        return f"Its reward is {how} the other version's, {over}{limit}."
    if name in _MORE_OFTEN:
        if abs(difference) < _SAME:
            return f"{_MORE_OFTEN[name]} as often as the other version's, {over}."
        often = "less" if difference > 0 else "more"
        return f"{_MORE_OFTEN[name]} {often} often, by {100 * abs(difference):.0f} percentage points, {over}."
    times = _number(seen, "times")
    if times is None:  # of an older program
        return None
    limit = f"; limit {tolerated:g} ×" if tolerated is not None else ""
    return f"{_TIMES[name]} {times:.2f} × {'the tokens' if name == 'length' else 'the time'}, {over}{limit}."


def _higher(difference: float) -> str:
    return "higher" if difference > 0 else "lower"


# --- words


def _code(move: VersionMove) -> str:
    return (move.why or "").partition(":")[0] if move.move == VersionState.REJECTED else ""


def _number(values: Mapping[str, Any], name: str) -> float | None:
    """A finite number among stored figures, which may be anything; None: it is missing."""
    value = values.get(name)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return None
    return float(value)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _many(count: float, noun: str) -> str:
    return f"{count:,.0f} {noun}{'' if count == 1 else 's'}"
