"""RULER: one request ranks a whole group.

Owns: the ruling in a reply, and reading a stored reply instead of asking. Refuses: the prompt (`judge.llm.prompt`),
asking and repairs (`judge.llm.repair`), and reading replies (`judge.llm.reply_reader`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from judge.errors import JudgeUsage, ReplyRefused
from judge.llm.prompt import GroupPrompt, reply_form
from judge.llm.repair import Ask, ask_and_read
from judge.llm.reply_reader import TrajectoryVerdict, read_reply

SAME = 0.5  # neutral: no trajectory is better than another
_HINT = ". `hone score GROUP --debug` shows prompt and reply."


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
    form = f"{_form(prompt)}, each score a number from 0 to 1"
    found = await ask_and_read(prompt.messages, ask, partial(_verdicts, prompt), form, prompt.ids, hint=_HINT)
    return GroupRuling(found.verdicts, found.reply, found.version, found.spent, found.asked)


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
        verdicts = await asyncio.to_thread(_verdicts, prompt, reply)
    except ReplyRefused:
        return None
    return GroupRuling(verdicts, reply, version, JudgeUsage(), asked=0)


def _verdicts(prompt: GroupPrompt, reply: str) -> dict[str, TrajectoryVerdict]:
    by_id = read_reply(reply, list(prompt.ids), prompt.subscores)
    return {member: by_id[name] for name, members in prompt.ids.items() for member in members}


def _form(prompt: GroupPrompt) -> str:
    if not prompt.subscores:
        return '{"trajectories": [{"id", "explanation", "score"}]}'
    return reply_form(prompt.subscores).partition("\n")[0]
