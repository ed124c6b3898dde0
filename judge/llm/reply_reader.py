"""Read the judge's reply: one score in 0..1 for each id, or a precise error. Pure.

Owns: which document is the verdict, checking ids, recognising the scale of the whole reply. Refuses: finding documents
(`recorder.llm.json_reply`), and guesses: an ambiguous reply is refused with a message that tells the judge what to
correct.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from judge.errors import ReplyRefused
from judge.llm.prompt import mean_score
from judge.panel_settings import SubscoreSettings
from recorder.errors import ReplyUnreadable
from recorder.llm.json_reply import DuplicateKeys, find_documents

MAX_EXPLANATION_CHARS = 4_000
# The keys that only a verdict has: quoted or, as some judges write them, bare after a brace.
_PART = re.compile(r"""["'](?:trajectories|subscores|score)["']\s*:|\{\s*(?:trajectories|id)\s*:""")
# All quantifiers are possessive: with backtracking, a hostile number of 400,000 digits would take quadratic time.
_SCORE = re.compile(
    r"([+-]?(?:\d++\.?\d*+|\.\d++))(?:\s*+/\s*+(\d++(?:\.\d++)?)|\s*+(%|percent))?", re.IGNORECASE | re.ASCII
)

_BEST = "give scores from 0 to 1, where 1 is the best"


@dataclass(frozen=True, slots=True)
class Subscore:
    """One sub-score in 0..1, and why."""

    score: float
    reason: str


@dataclass(frozen=True, slots=True)
class TrajectoryVerdict:
    """The judge's verdict on one trajectory: a score in 0..1, and why. `subs`: the sub-scores behind it."""

    score: float
    explanation: str
    subs: Mapping[str, Subscore] = field(default_factory=dict)


def read_reply(
    reply: str, ids: Sequence[str], subscores: Sequence[SubscoreSettings] = ()
) -> dict[str, TrajectoryVerdict]:
    """The verdict for each of `ids`, in any order in the reply; with all `subscores`, if any.

    Fences, prose and reasoning around the JSON are skipped. Scores may be on 0..1, 0-10 or 0-100, or written as `8/10`
    or `40 %`, if the whole reply uses that one scale. Ranks (1, 2, 3 …, in any order, without a stated scale) are
    refused: nothing tells whether 1 is the best or the worst.

    Raises:
        ReplyRefused: there is no verdict, or two, or one beside parts of another; ids are missing, duplicate or
            unknown; a score is not a finite number, or a rank, or the scale is ambiguous; a sub-score or its reason is
            missing.
    """
    try:
        by_id = _by_id(_entries(reply), ids)
        if subscores:
            return _by_subscores(by_id, ids, subscores)
        scores = scale_to_unit({name: _number(name, by_id[name]) for name in ids})
    except RecursionError as e:  # it was parsed, but is too deep to process
        raise ReplyRefused("the reply is nested without end; give one JSON object and nothing else") from e
    return {name: TrajectoryVerdict(scores[name], _explanation(by_id[name])) for name in ids}


# Finding the verdict


def _entries(reply: str) -> list[Any]:
    try:
        found = find_documents(reply)
    except ReplyUnreadable as e:
        raise ReplyRefused(str(e)) from e
    verdicts = [(document, entries) for document in found.documents if (entries := _verdicts_in(document)) is not None]
    if not verdicts:
        raise ReplyRefused('there is no JSON object with "trajectories": [{"id", "explanation", "score"}] in the reply')
    # not by ==: NaN differs from itself, but a repeated NaN is the same mistake
    if len({repr(entries) for _, entries in verdicts}) > 1:
        raise ReplyRefused("the reply holds at least 2 different verdicts; give one JSON object and nothing else")
    verdict_ids = {id(document) for document, _ in verdicts}
    others = (repr(document) for document in found.documents if id(document) not in verdict_ids)
    if found.unfinished or any(_PART.search(text) for text in (*found.around, *others)):
        raise ReplyRefused(
            "beside its verdict the reply holds parts of another that is broken or cut off; give one JSON object and "
            "nothing else"
        )
    return verdicts[0][1]


def _verdicts_in(document: Any) -> list[Any] | None:
    """The entries of a document that has the form of a verdict, else None."""
    if isinstance(document, dict):
        if isinstance(document, DuplicateKeys) and "trajectories" in document:
            raise ReplyRefused("the verdict has a key twice")
        entries = document.get("trajectories")
        return entries if isinstance(entries, list) else None
    if isinstance(document, list) and any(isinstance(entry, dict) and "id" in entry for entry in document):
        return document
    return None


# Ids


def _by_id(entries: Sequence[Any], ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for number, entry in enumerate(entries, start=1):
        name = _name(number, entry)
        if name in found:
            raise ReplyRefused(f"id {name} is there twice")
        found[name] = entry
    if unknown := [name for name in found if name not in ids]:
        raise ReplyRefused(f"unknown ids: {_listed(unknown)}; the ids are {', '.join(ids)}")
    if absent := [name for name in ids if name not in found]:
        raise ReplyRefused(f"no score for: {', '.join(absent)}")
    return found


def _name(number: int, entry: Any) -> str:
    if not isinstance(entry, dict):
        raise ReplyRefused(f"entry {number} is not an object with id, explanation and score")
    if isinstance(entry, DuplicateKeys):
        raise ReplyRefused(f"entry {number} has a key twice")
    name = entry.get("id")
    if not isinstance(name, str):
        raise ReplyRefused(f"entry {number} has no id (a text)")
    return name.strip()


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name[:60]) for name in names[:5])


def _explanation(entry: Mapping[str, Any]) -> str:
    text = entry.get("explanation")
    return text[:MAX_EXPLANATION_CHARS] if isinstance(text, str) else ""


# Sub-scores


def _by_subscores(
    by_id: Mapping[str, dict[str, Any]], ids: Sequence[str], subscores: Sequence[SubscoreSettings]
) -> dict[str, TrajectoryVerdict]:
    """All sub-scores of a reply are on one scale."""
    entries = {(id_, name): entry for id_ in ids for name, entry in _subs_of(id_, by_id[id_], subscores).items()}
    labels = {(id_, name): f"{name} of {id_}" for id_, name in entries}
    written = {key: _number(label, entries[key]) for key, label in labels.items()}
    for sub in subscores:  # a judge may rank in one respect and score in another
        _refuse_ranks([written[id_, sub.name] for id_ in ids])
    units = scale_to_unit({labels[key]: score for key, score in written.items()})
    found: dict[str, TrajectoryVerdict] = {}
    for id_ in ids:
        subs = {
            sub.name: Subscore(units[labels[id_, sub.name]], _reason(labels[id_, sub.name], entries[id_, sub.name]))
            for sub in subscores
        }
        score = mean_score(subscores, {name: sub.score for name, sub in subs.items()})
        why = _explanation(by_id[id_]) or "; ".join(f"{name}: {sub.reason}" for name, sub in subs.items())
        found[id_] = TrajectoryVerdict(score, why[:MAX_EXPLANATION_CHARS], subs)
    return found


def _subs_of(id_: str, entry: Mapping[str, Any], subscores: Sequence[SubscoreSettings]) -> dict[str, dict[str, Any]]:
    """The entry of each sub-score, given as an object or as a list of objects with names.

    Names are matched case-insensitively. Entries that were not requested (a total, say) are ignored.
    """
    given = entry.get("subscores")
    if isinstance(given, DuplicateKeys) or not isinstance(given, dict | list):
        raise ReplyRefused(f'the entry of {id_} has no "subscores": an object with {_names(subscores)}, each once')
    found: dict[str, dict[str, Any]] = {}
    for name, sub in given.items() if isinstance(given, dict) else map(_with_name, given):
        folded = name.strip().casefold() if isinstance(name, str) else ""
        if folded in found:
            raise ReplyRefused(f"the sub-score {folded[:60]!r} of {id_} is there twice")
        found[folded] = sub
    wanted = {sub.name: found.get(sub.name.casefold()) for sub in subscores}
    if absent := [name for name, sub in wanted.items() if sub is None]:
        raise ReplyRefused(f"{id_} has no sub-score {', '.join(absent)}")
    for name, sub in wanted.items():
        if not isinstance(sub, dict) or isinstance(sub, DuplicateKeys):
            raise ReplyRefused(f'{name} of {id_} is not an object with "reason" and "score", each once')
    return {name: sub for name, sub in wanted.items() if sub is not None}


def _with_name(sub: Any) -> tuple[Any, Any]:
    return (sub.get("name"), sub) if isinstance(sub, dict) else (None, sub)


def _names(subscores: Sequence[SubscoreSettings]) -> str:
    return ", ".join(sub.name for sub in subscores)


def _reason(label: str, entry: Mapping[str, Any]) -> str:
    text = entry.get("reason", entry.get("explanation"))
    if not isinstance(text, str) or not text.strip():
        raise ReplyRefused(f"{label} has no reason (a text)")
    return text[:MAX_EXPLANATION_CHARS]


# Scores and their scale


@dataclass(frozen=True, slots=True)
class WrittenScore:
    """A score as the judge wrote it: a number, and its stated maximum (None: not stated)."""

    value: float
    out_of: float | None


def _number(name: str, entry: dict[str, Any]) -> WrittenScore:
    if "score" not in entry:
        if "rank" in entry:
            raise ReplyRefused(f"the entry of {name} has a rank and no score; {_BEST}")
        raise ReplyRefused(f"the entry of {name} has no score")
    score = entry["score"]
    if isinstance(score, bool) or not isinstance(score, int | float | str):
        raise ReplyRefused(f"the score of {name} is {json.dumps(score)[:60]}, not a number")
    written = _parse(name, score) if isinstance(score, str) else WrittenScore(_float(name, score), None)
    if not math.isfinite(written.value) or not math.isfinite(written.out_of or 1.0):
        raise ReplyRefused(f"the score of {name} is not finite")
    return written


def _float(name: str, score: float) -> float:
    try:
        return float(score)
    except OverflowError as e:
        raise ReplyRefused(f"the score of {name} is not finite") from e


def _parse(name: str, score: str) -> WrittenScore:
    match = _SCORE.fullmatch(score.strip())
    if match is None:
        raise ReplyRefused(f"the score of {name} is {score[:60]!r}, not a number")
    value, out_of, percent = match.groups()
    return WrittenScore(float(value), 100.0 if percent else float(out_of) if out_of else None)


def scale_to_unit(scores: dict[str, WrittenScore]) -> dict[str, float]:
    """Convert all scores of one reply to 0..1.

    Raises:
        ReplyRefused: they are ranks, they are not all on one scale, the scale is ambiguous, or a score lies outside it.
    """
    _refuse_ranks(scores.values())
    top = _scale(scores)
    for name, score in scores.items():
        if not 0 <= score.value <= top:
            raise ReplyRefused(f"the score of {name} is {score.value:g}, outside 0..{top:g}; give scores from 0 to 1")
    return {name: score.value / top for name, score in scores.items()}


def _refuse_ranks(scores: Collection[WrittenScore]) -> None:
    """Raise ReplyRefused where no scale is stated and the scores are exactly 1, 2, … k, ties included."""
    if any(score.out_of is not None for score in scores):
        return
    values = {score.value for score in scores}
    if len(values) > 1 and values == set(range(1, len(values) + 1)):
        listed = ", ".join(f"{value:g}" for value in sorted(values))
        raise ReplyRefused(f"the scores {listed[:60]} may be ranks, not scores; {_BEST}")


def _scale(scores: dict[str, WrittenScore]) -> float:
    """The maximum of the scale of the whole reply."""
    stated = {score.out_of for score in scores.values()}
    if len(stated) > 1:
        raise ReplyRefused("the scores are written in different ways; give all as numbers from 0 to 1")
    values = [score.value for score in scores.values()]
    (out_of,) = stated
    if out_of is not None:
        if out_of == 0 or (out_of > 1 and _fractions(values) and max(values) <= 1):
            raise ReplyRefused("the scale of the scores is unclear; give numbers from 0 to 1")
        return out_of
    highest = max(values)
    if highest < 2:  # 1.2 is no score on another scale, it is outside this one
        return 1.0
    top = 10.0 if highest <= 10 else 100.0
    # 0.8 beside 7 may be 0.8 of 1 or of 10; 1 beside 85 may be the highest score or almost the lowest.
    if _fractions(values) or (top > 10 and 1 in values):
        raise ReplyRefused("the scores are on different scales; give all as numbers from 0 to 1")
    return top


def _fractions(values: Sequence[float]) -> bool:
    return any(0 < value < 1 for value in values)
