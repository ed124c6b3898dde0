"""Rows of the ledger as notices: decisions about versions, findings that pause learning, and health rules. Pure.

Owns: which rows are told, and their sentences. Refuses: reading them (`recorder.views.notices.ledger_events`), and the
free text of a row, which a person, a model or users' code may have written: a notice has its code instead.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from recorder.queue.notifications import Notice, NoticeKind
from recorder.registry.learning_health import HEALTH_RULES
from recorder.registry.live_findings import DRIFT, FALL, HEALTH
from recorder.states import VersionState
from recorder.views.campaigns.events import ALARM

_MOST_FIGURES: Final = 20
_CODE: Final = re.compile(r"[a-z][a-z0-9_]{0,63}(?=:|\Z)")
_LIVE: Final = ("promote", "gate")
_FINDINGS: Final = (FALL, DRIFT, HEALTH)
VERSION_CODES: Final = (
    *_LIVE, "rollback", "canary_ended", *_FINDINGS, str(VersionState.REJECTED), str(VersionState.GATED),
)  # fmt: skip
CODES: Final = (*VERSION_CODES, ALARM, HEALTH_RULES)  # of the rows that may be told


@dataclass(frozen=True, slots=True)
class LedgerEvent:
    """A row of the ledger, with the name of what it is about: a version's, an alias's or a campaign's."""

    id: int
    kind: str
    code: str
    detail: Mapping[str, Any]
    at: float
    name: str


def notice_of(event: LedgerEvent, by_hand: Collection[str]) -> Notice | None:
    """Return the notice of a row, or None if it is not told."""
    said = _of_version(event, by_hand) if event.kind == "version" else _of_health(event)
    if said is None:
        return None
    kind, what, link = said
    key = hashlib.sha256(f"ledger {event.id} {event.at!r}".encode()).hexdigest()[:32]
    return Notice(kind, key, what, link, event.at, numbers_of(event.detail.get("figures")))


def _of_version(event: LedgerEvent, by_hand: Collection[str]) -> tuple[NoticeKind, str, str] | None:
    name, alias, link = event.name, event.name.rpartition("@")[0], version_link(event.name)
    hand = event.detail.get("who") != "controller"
    if event.code in _LIVE:
        how = "the gate decided" if event.code == "gate" else "a person or a key decided"
        return NoticeKind.VERSION_LIVE, f"{name} is live: {how}.", link
    if event.code == "rollback":
        how = "a person or a key rolled back" if hand else "the version after it was shown to be worse"
        return NoticeKind.VERSION_ROLLED_BACK, f"{name} is live again: {how}.", link
    if event.code == "canary_ended":
        how = "a person or a key decided" if hand else "it was shown to be worse"
        return NoticeKind.VERSION_ROLLED_BACK, f"The canary {name} was removed: {how}.", link
    if event.code == VersionState.REJECTED:
        return NoticeKind.VERSION_REJECTED, f"{name} was rejected{_because(event.detail.get('reason'))}.", link
    if event.code == VersionState.GATED:
        what = f"{name} passed its checks and waits for a person: `hone promote {name}` makes it live."
        return (NoticeKind.REVIEW_WAITING, what, link) if alias in by_hand else None
    what = (
        f"Learning of {alias} is paused: {event.code} was found about {name}. `hone promote {name}` keeps it, "
        f"`hone rollback {alias}` takes it back."
    )
    return NoticeKind.LEARNER_PAUSED, what, link


def _of_health(event: LedgerEvent) -> tuple[NoticeKind, str, str] | None:
    step = int(event.detail.get("step") or 0)
    if event.code == HEALTH_RULES:
        rules = sorted(code_of(one.get("rule")) for one in event.detail.get("signals") or ())
        if not rules:
            return None  # the last signal has ended
        what = f"{', '.join(rules)}: a health rule signals in learning of {event.name}, at step {step}."
        return NoticeKind.ALARM, what, "/hone/training"
    what = f"{code_of(event.detail.get('rule'))}: a health rule fired in campaign {event.name}, after step {step}"
    if event.detail.get("then") == "pause":
        return NoticeKind.LEARNER_PAUSED, f"{what}. The campaign is paused.", "/hone/training"
    ended = ". The campaign ended." if event.detail.get("then") == "stop" else "."
    return NoticeKind.ALARM, f"{what}{ended}", "/hone/training"


def version_link(name: str) -> str:
    """Return the path of a version's page."""
    return f"/hone/versions/{quote(name, safe='/@:~')}"


def code_of(text: object) -> str:
    """Return the code that a text begins with; `unknown` if it begins with none."""
    found = _CODE.match(str(text or ""))
    return found[0] if found is not None else "unknown"


def _because(reason: object) -> str:
    code = code_of(reason)
    return "" if code == "unknown" else f" ({code})"


def numbers_of(figures: object) -> dict[str, float]:
    """Return the finite numbers of recorded figures, at most twenty; nothing else of them is told."""
    if not isinstance(figures, Mapping):
        return {}
    numbers = {
        str(name): value
        for name, value in figures.items()
        if isinstance(value, int | float) and math.isfinite(value) and str(name).isascii() and len(str(name)) <= 64
    }
    return dict(list(numbers.items())[:_MOST_FIGURES])
