"""Follow-ups as rewards: what came next after the answers of a trajectory, by rules first, else by a judge model.

Owns: the rules, which follow-ups count, what a verdict is worth, the waiting, and reuse and storage of verdicts.
Refuses: prompts and replies (`judge.llm.follow_up`), which follow-up is about which answer
(`recorder.views.follow_ups`), and how the part enters the reward (`judge.scoring.reward_parts`).

The reward is the mean over the answers on the main path whose follow-up says something about them. A trajectory without
such a follow-up has no reward: silence is never 0.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from judge.errors import JudgeFailed, JudgeUnanswered, JudgeUsage, PromptTooLong
from judge.llm.follow_up import TurnVerdict, Verdict, judge_follow_ups
from judge.llm.follow_up_prompt import AnsweredTurn, build_follow_up_prompt, content_hash
from judge.llm.group_text import PromptTrajectory, prompt_trajectory
from judge.llm.repair import Ask
from judge.rewards.part import ModelParts, RewardPart
from judge.rewards.verdict_cache import VerdictCache
from judge.settings import JudgeSettings
from recorder.messages.calls import Message
from recorder.store.database import Project
from recorder.views.follow_ups.events import FollowUp, FollowUpKind
from recorder.views.follow_ups.loader import load_follow_ups
from recorder.views.follow_ups.rules import normal_form, user_text
from recorder.views.trajectories.shapes import TrajectoryView

WORTH: Final[Mapping[Verdict, float]] = {Verdict.SATISFIED: 1.0, Verdict.REPHRASED: 0.3, Verdict.CORRECTED: 0.0}
MOST_TURNS: Final = 8  # newest answers of a trajectory that are judged
SOONEST_S: Final = 30.0  # a waiting group is looked at again after as long as it waited already, and at least this

_THANKS: Final = re.compile(
    r"(?:(?:ok|okay|great|perfect|awesome|excellent|wonderful|nice|cool|super|yes|ah|oh) )*"
    r"(?:(?:many )?thanks(?: a lot| so much| again| very much)?|thank you(?: so much| very much| again)?|thx|ty|cheers"
    r"|perfect|great|awesome|excellent|wonderful|that works?(?:ed)?|it work(?:s|ed)|danke(?: schön)?|vielen dank|merci"
    r"(?: beaucoup)?|gracias|muchas gracias|grazie(?: mille)?|obrigad[oa]|ありがとう(?:ございます)?|谢谢)"
    r"(?: (?:that works?(?:ed)?|it work(?:s|ed)|perfect|great|bye))*"
)
MOST_THANKS_CHARS: Final = 80

NO_MODEL: Final = "what came next cannot be decided by rules, and no judge model is set: set judge.model"
NOTHING_CAME: Final = "nothing came after its answers within judge.follow_up_wait_s"


def rule_verdict(asked: str, events: Sequence[FollowUp], *, is_last: bool) -> TurnVerdict | None:
    """The verdict that needs no judge; None: there is none. `asked`: the user's text before the answer.

    A rule decides only where all that came next agrees with it. An error of a tool counts for the trajectory's last
    answer (`is_last`): after any other the agent went on, and what it made of the error counts.
    """
    found = [_of_event(asked, one, is_last=is_last) for one in events]
    verdicts = list(dict.fromkeys(one for one in found if one is not None))
    return verdicts[0] if len(verdicts) == 1 and None not in found else None


def _of_event(asked: str, event: FollowUp, *, is_last: bool) -> TurnVerdict | None:
    match event.kind:
        case FollowUpKind.RETRY:
            return TurnVerdict(Verdict.REPHRASED, "rule: the same request was sent again")
        case FollowUpKind.TOOL_ERROR:
            if is_last:
                return TurnVerdict(Verdict.CORRECTED, "rule: a tool that the last answer called failed")
            return TurnVerdict(Verdict.NOTHING, "rule: the agent went on after a tool's error")
        case FollowUpKind.ABANDONED:
            return TurnVerdict(Verdict.ABANDONED, f"rule: {event.text}")
        case FollowUpKind.MESSAGE | FollowUpKind.EDITED if asked and normal_form(event.text) == normal_form(asked):
            return TurnVerdict(Verdict.REPHRASED, "rule: the same message was sent again")
        case FollowUpKind.MESSAGE if is_thanks(event.text):
            return TurnVerdict(Verdict.SATISFIED, "rule: a thank-you")
    return None


def is_thanks(text: str) -> bool:
    """Whether a message only thanks or agrees. Anything beside it is for the judge: "Thanks, but …"."""
    return len(text) <= MOST_THANKS_CHARS and "?" not in text and _THANKS.fullmatch(normal_form(text)) is not None


@dataclass(frozen=True, slots=True)
class FollowUpSubject:
    """One trajectory, the answers of its main path that something came after, and whether something came after all."""

    id: str
    run: PromptTrajectory
    turns: Sequence[AnsweredTurn]
    asked: Sequence[str]  # the user's text before each of these answers
    last: bool  # the last of `turns` is the trajectory's last answer

    @property
    def is_waiting(self) -> bool:
        """Whether a follow-up to its last answer may still come."""
        return not self.last


def read_subject(view: TrajectoryView, follow_ups: Iterable[FollowUp], wait_s: float) -> FollowUpSubject:
    """The answers of a trajectory's main path and what came next, at most `wait_s` after the trajectory ended."""
    ended = view.ended_at if view.ended_at is not None else view.last_call_at
    by_answer: dict[tuple[str, int], list[FollowUp]] = {}
    for one in follow_ups:
        if one.at <= ended + wait_s:
            by_answer.setdefault((one.call_id, one.choice), []).append(one)
    calls = {call.id: call for call in view.calls}
    turns: list[AnsweredTurn] = []
    asked: list[str] = []
    last = False
    for id_, index in view.main_path:
        call = calls.get(id_)
        message = next((one.message for one in call.choices if one.index == index), None) if call is not None else None
        last = (id_, index) in by_answer and message is not None
        if call is not None and message is not None and last:
            turns.append(AnsweredTurn(message, by_answer[id_, index]))
            asked.append(_asked_last(call.messages))
    return FollowUpSubject(view.id, prompt_trajectory(view), turns[-MOST_TURNS:], asked[-MOST_TURNS:], last)


def _asked_last(messages: Sequence[Message]) -> str:
    """The user's text behind the last assistant message."""
    begins = next((at for at in range(len(messages), 0, -1) if messages[at - 1].get("role") == "assistant"), 0)
    return user_text(messages[begins:])


def wait_left(members: Sequence[TrajectoryView], subjects: Sequence[FollowUpSubject], wait_s: float) -> float | None:
    """Seconds until the group is looked at again; None: nothing is waited for.

    Looks are further and further apart, so that a group that waits costs few of them.
    """
    ended = max(view.ended_at or view.last_call_at for view in members)
    waited = time.time() - ended
    if waited >= wait_s or not any(subject.is_waiting for subject in subjects):
        return None
    return min(wait_s - waited, max(SOONEST_S, waited))


def follow_up_part(verdicts: Sequence[TurnVerdict]) -> RewardPart:
    """The part that the verdicts on a trajectory's answers make: their mean worth; none if none has a worth."""
    values = [WORTH[one.verdict] for one in verdicts if one.verdict in WORTH]
    why = "; ".join(f"{one.verdict}: {one.reason}" for one in verdicts)
    if not values:
        return RewardPart(None, why or NOTHING_CAME, of_run=False, absent=True)
    return RewardPart(sum(values) / len(values), why)


class FollowUpJudge:
    """Judges trajectories by what came next. `ask`: the judge model; None: rules alone decide."""

    def __init__(self, settings: JudgeSettings, project: Project, ask: Ask | None, known: VerdictCache) -> None:
        self._settings = settings
        self._project = project
        self._ask = ask
        self._known = known
        self._random = random.SystemRandom()

    def afresh(self) -> FollowUpJudge:
        """The same without any stored verdict."""
        return FollowUpJudge(self._settings, self._project, self._ask, self._known.afresh())

    async def read(self, members: Sequence[TrajectoryView]) -> list[FollowUpSubject]:
        """What came next after each trajectory's answers, within `judge.follow_up_wait_s`."""
        found = []
        for view in members:
            events = await load_follow_ups(self._project.store, view)
            counted = [one for one in events if self._settings.reads_comments or one.kind is not FollowUpKind.FEEDBACK]
            found.append(read_subject(view, counted, self._settings.follow_up_wait_s))
        return found

    async def judge(self, subjects: Sequence[FollowUpSubject]) -> ModelParts:
        """A part for each trajectory; without a value if nothing came, or if its verdicts could not be obtained.

        Raises:
            JudgeDown: the judge did not answer about one of them. Its other verdicts are kept.
        """
        out = ModelParts()
        answers = await asyncio.gather(*(self._verdicts(one, out) for one in subjects), return_exceptions=True)
        down: BaseException | None = None
        for subject, answer in zip(subjects, answers, strict=True):
            if not isinstance(answer, BaseException):
                out.parts[subject.id] = follow_up_part(answer)
                continue
            out.spent += answer.spent if isinstance(answer, JudgeFailed) else JudgeUsage()
            if not isinstance(answer, JudgeUnanswered | PromptTooLong | _NoModel):
                down = down or answer
            out.parts[subject.id] = RewardPart(None, str(answer), of_run=False, absent=isinstance(answer, _NoModel))
        if isinstance(down, JudgeFailed):
            down.spent = out.spent
        if down is not None:
            raise down
        return out

    async def _verdicts(self, subject: FollowUpSubject, out: ModelParts) -> list[TurnVerdict]:
        """The verdicts on a trajectory's answers, in order: the rules', else the judge's."""
        last = len(subject.turns) - 1
        by_rule = [
            rule_verdict(asked, turn.follow_ups, is_last=subject.last and at == last)
            for at, (asked, turn) in enumerate(zip(subject.asked, subject.turns, strict=True))
        ]
        open_ = [at for at, verdict in enumerate(by_rule) if verdict is None]
        judged = await self._judged(subject, [subject.turns[at] for at in open_], out) if open_ else []
        by_judge = dict(zip(open_, judged, strict=True))
        return [verdict or by_judge[at] for at, verdict in enumerate(by_rule)]

    async def _judged(
        self, subject: FollowUpSubject, turns: Sequence[AnsweredTurn], out: ModelParts
    ) -> list[TurnVerdict]:
        """The stored verdicts of the judge model, else new ones."""
        if self._ask is None:
            raise _NoModel(NO_MODEL)
        out.judged = True
        digest = await asyncio.to_thread(content_hash, subject.run, turns)
        key = self._known.key(["follow_up", digest])
        prompt = await asyncio.to_thread(
            build_follow_up_prompt, subject.run, turns, max_chars=self._settings.max_context_chars, rng=self._random
        )
        known = (await self._known.find([key])).get(key)
        if known is not None:
            out.prompts[subject.id] = prompt.messages
            out.version = out.version or known.judge_version
            return [TurnVerdict(Verdict(word), reason) for word, reason in json.loads(known.verdicts)]
        found = await judge_follow_ups(prompt, self._ask)
        out.prompts[subject.id] = prompt.messages
        out.spent += found.spent
        out.asked += 1
        out.version = out.version or found.version
        said = json.dumps([[one.verdict, one.reason] for one in found.verdicts])
        await self._known.keep(key, subject.id, said, found.version)
        return found.verdicts


class _NoModel(Exception):
    """A follow-up needs a judge model, and none is set."""
