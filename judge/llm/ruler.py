"""RULER: one request ranks a whole group.

Owns: asking, the one repair request that shows the judge its error, and reading a stored reply instead of asking.
Refuses: the prompt (`judge.llm.prompt`), reading replies (`judge.llm.reply_reader`), sending (`judge.llm.judge_model`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from judge.errors import JudgeFailed, JudgeUnanswered, JudgeUsage, ReplyRefused
from judge.llm.judge_model import JudgeAnswer, Messages
from judge.llm.prompt import GroupPrompt, reply_form
from judge.llm.reply_reader import TrajectoryVerdict, read_reply

MAX_SHOWN_REPLY_CHARS = 4_000
SAME = 0.5  # neutral: no trajectory is better than another
CUT = "it was cut off at judge.max_tokens; be brief"

Ask = Callable[[Messages], Awaitable[JudgeAnswer]]


@dataclass(frozen=True, slots=True)
class GroupRuling:
    """The judge's ruling on a group. `verdicts` by trajectory id; identical trajectories share theirs."""

    verdicts: Mapping[str, TrajectoryVerdict]
    reply: str | None  # None: no request was made, or several, each with its own
    version: str | None
    spent: JudgeUsage
    asked: int  # requests sent: 0 (a stored reply, or none needed), 1, 2 (with a repair), more (a panel)
    unasked: bool = False  # no request was needed: the verdicts tie the group


async def rank_group(prompt: GroupPrompt, ask: Ask) -> GroupRuling:
    """Ask the judge about a group, and once more if its reply cannot be read.

    Raises:
        JudgeDown: it did not answer.
        JudgeUnanswered: neither reply could be read, or there was none.
    """
    first = await ask(prompt.messages)
    require_reply(first, prompt.messages, JudgeUsage())
    try:
        return GroupRuling(await _verdicts(prompt, first), first.text, first.version, first.spent, asked=1)
    except ReplyRefused as e:
        why = str(e)
    again = _repair(prompt, first, why)
    try:
        second = await ask(again)
    except JudgeFailed as e:
        e.spent = first.spent + e.spent
        raise
    require_reply(second, again, first.spent)
    spent = first.spent + second.spent
    try:
        return GroupRuling(await _verdicts(prompt, second), second.text, second.version, spent, asked=2)
    except ReplyRefused as e:
        raise JudgeUnanswered(
            "judge_unreadable",
            f"the judge's reply could not be read: {why}; nor could its second reply: {e}. "
            "`hone score GROUP --debug` shows prompt and reply.",
            spent=spent,
            exchange=[*again, {"role": "assistant", "content": second.text}],
        ) from e


def identical_ruling(prompt: GroupPrompt) -> GroupRuling:
    """The ruling on identical trajectories, without a request: all get the same score."""
    same = TrajectoryVerdict(
        SAME, "all trajectories of the group are identical: no judge was asked, and all get the same score"
    )
    verdicts = {member: same for members in prompt.ids.values() for member in members}
    return GroupRuling(verdicts, None, None, JudgeUsage(), asked=0, unasked=True)


async def recall_ruling(prompt: GroupPrompt, reply: str, version: str | None) -> GroupRuling | None:
    """The ruling in a stored reply to `prompt`; None if it cannot be read."""
    try:
        verdicts = _spread(prompt, await _read(prompt, reply))
    except ReplyRefused:
        return None
    return GroupRuling(verdicts, reply, version, JudgeUsage(), asked=0)


def require_reply(answer: JudgeAnswer, messages: Messages, before: JudgeUsage) -> None:
    """Raise JudgeUnanswered if the judge declined or its provider cut it off: a repair request would not help."""
    if answer.refusal is not None:
        code, why = "judge_declined", f"the judge declined to judge: {answer.refusal}"
    elif answer.finish_reason == "content_filter":
        code, why = "judge_filtered", "the filter of the judge's provider cut its reply off"
    else:
        return
    message = {"role": "assistant", "content": answer.refusal or answer.text}
    raise JudgeUnanswered(
        code,
        f"{why}. `hone score GROUP --debug` shows the prompt; another judge.model may accept it.",
        spent=before + answer.spent,
        exchange=[*messages, message],
    )


async def _verdicts(prompt: GroupPrompt, answer: JudgeAnswer) -> Mapping[str, TrajectoryVerdict]:
    try:
        by_id = await _read(prompt, answer.text)
    except ReplyRefused as e:
        if answer.finish_reason == "length":
            raise ReplyRefused(f"{e} ({CUT})") from e
        raise
    if answer.finish_reason == "length":  # the missing end is unknown
        raise ReplyRefused(CUT)
    return _spread(prompt, by_id)


async def _read(prompt: GroupPrompt, reply: str) -> dict[str, TrajectoryVerdict]:
    # A long reply takes a while to read: off the loop, which renews leases.
    return await asyncio.to_thread(read_reply, reply, list(prompt.ids), prompt.subscores)


def _spread(prompt: GroupPrompt, by_id: Mapping[str, TrajectoryVerdict]) -> dict[str, TrajectoryVerdict]:
    return {member: by_id[name] for name, members in prompt.ids.items() for member in members}


def _repair(prompt: GroupPrompt, answer: JudgeAnswer, why: str) -> list[dict[str, str]]:
    return [
        *prompt.messages,
        {"role": "assistant", "content": answer.text[:MAX_SHOWN_REPLY_CHARS] or "(nothing)"},
        {
            "role": "user",
            "content": f"That reply cannot be used: {why}. Reply again with one JSON object and nothing else: "
            f"{_form(prompt)}, each score a number from 0 to 1, and each of these ids exactly once: "
            f"{', '.join(prompt.ids)}",
        },
    ]


def _form(prompt: GroupPrompt) -> str:
    if not prompt.subscores:
        return '{"trajectories": [{"id", "explanation", "score"}]}'
    return reply_form(prompt.subscores).partition("\n")[0]
