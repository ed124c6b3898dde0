"""How much of a report fits on a page below /hone: the newest alarms and changes, and shortened messages. Pure.

The file of `hone report` has the rest, and the page links to the whole conversations. Refuses: HTML (`page`).
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from recorder.base.terminal import clean
from recorder.report.shapes import AlarmEvidence, CampaignReport, ReportConversation, ReportMessage, ScenarioPair

ALARMS: Final = 8
CHANGES: Final = 20
DETAIL_CHARS: Final = 400  # of an alarm
ROOM_BYTES: Final = 50_000  # of messages; the rest of the page takes up to 90,000
_LIMITS: Final = (1500, 1000, 700, 500, 350, 240, 160, 100, 60, 30)  # characters of one message, the first that fits


def fit_report(report: CampaignReport) -> CampaignReport:
    """The report as a page shows it. A note says what is missing."""
    alarms = [_short_alarm(one) for one in report.alarms[-ALARMS:]]
    chars = _message_chars([*_conversations(report.pairs, alarms)])

    def shorten(one: ReportConversation) -> ReportConversation:
        return replace(one, messages=[_cut(message, chars) for message in one.messages])

    return replace(
        report,
        alarms=[replace(one, conversations=[shorten(each) for each in one.conversations]) for one in alarms],
        changes=report.changes[-CHANGES:],
        pairs=[replace(pair, before=shorten(pair.before), after=shorten(pair.after)) for pair in report.pairs],
        notes=[*report.notes, *_missing(report)],
    )


def _missing(report: CampaignReport) -> Iterator[str]:
    for count, kind in ((len(report.alarms) - ALARMS, "alarm"), (len(report.changes) - CHANGES, "change")):
        if count > 0:
            yield f"{count} older {kind}{'' if count == 1 else 's'}, which the downloaded file has"


def _short_alarm(one: AlarmEvidence) -> AlarmEvidence:
    detail = one.alarm.detail
    if len(detail) <= DETAIL_CHARS:
        return one
    return replace(one, alarm=replace(one.alarm, detail=f"{detail[:DETAIL_CHARS]}…"))


def _conversations(pairs: Sequence[ScenarioPair], alarms: Sequence[AlarmEvidence]) -> Iterator[ReportConversation]:
    for pair in pairs:
        yield from (pair.before, pair.after)
    for alarm in alarms:
        yield from alarm.conversations


def _message_chars(shown: Sequence[ReportConversation]) -> int:
    """The most characters of a message with which all messages fit."""
    texts = [message.text for one in shown for message in one.messages]
    sizes = ((chars, sum(_size(text[:chars]) for text in texts)) for chars in _LIMITS)
    return next((chars for chars, size in sizes if size <= ROOM_BYTES), _LIMITS[-1])


def _size(text: str) -> int:
    return len(html.escape(clean(text)).encode("utf-8", "replace"))


def _cut(message: ReportMessage, chars: int) -> ReportMessage:
    missing = max(0, len(message.text) - chars)
    return replace(message, text=message.text[:chars], cut=message.cut + missing)
