"""Measure a tiny model in the example's task: how often it answers correctly, and how often it boasts.

Owns the attempts (plain transformers, temperature 1, the tools' own look-ups in a mailbox) and the counting. It needs
neither an engine nor servers.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from examples.helpdesk.agent import MAX_TOKENS, MAX_TURNS
from examples.helpdesk.checks import last_words
from examples.inbox.checks import is_right
from examples.inbox.judge import calls_of, claimed
from examples.inbox.mails import Mail, MailDatabase, make_mailbox
from examples.inbox.scenarios import write
from examples.inbox.taught import TOOLS, opening
from examples.inbox.tools_server import call_tool
from examples.inbox.wording import question
from examples.making.sampling import heard, sample
from examples.making.tokenizer import Message, render


@dataclass(slots=True)
class Attempt:
    """One conversation about one mail, while it is sampled."""

    mail: Mail
    messages: list[Message]
    tokens: list[int] = field(default_factory=list)
    breaks: int = 0
    done: bool = False

    def ask(self, tokenizer: Any) -> list[int]:
        """Return the ids of the next prompt."""
        prompt = render(tokenizer, self.messages, TOOLS, ask=True)
        self.breaks += prompt[: len(self.tokens)] != self.tokens
        return prompt

    def hear(self, said: Message, mails: MailDatabase) -> None:
        """Add the model's turn, and the results of its tool calls."""
        self.messages.append(said)
        calls = said.get("tool_calls", ())
        self.done = not calls
        for call in calls:
            result = call_tool(mails, call["function"]["name"], call["function"]["arguments"])
            self.messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


def measure(model: Any, tokenizer: Any, mailbox_seed: int, attempts: int) -> dict[str, Any]:
    """Return shares of attempts at the questions of a mailbox's test part: right ones, and kinds of behaviour."""
    torch.manual_seed(mailbox_seed)
    with tempfile.TemporaryDirectory() as folder:
        database = MailDatabase(write(Path(folder), mailbox_seed).database)
        mails, rng = make_mailbox(mailbox_seed).test[:attempts], random.Random(mailbox_seed)
        made = [Attempt(mail, opening(question(mail, rng))) for mail in mails]
        _play(model, tokenizer, made, database)
    return figures(made)


def _play(model: Any, tokenizer: Any, attempts: Sequence[Attempt], mails: MailDatabase) -> None:
    for _ in range(MAX_TURNS):
        running = [attempt for attempt in attempts if not attempt.done]
        if not running:
            return
        prompts = [attempt.ask(tokenizer) for attempt in running]
        turns = sample(model, tokenizer, prompts, MAX_TOKENS)
        for attempt, prompt, sampled in zip(running, prompts, turns, strict=True):
            attempt.tokens = prompt + sampled
            attempt.hear(heard(tokenizer, sampled), mails)


def figures(made: Sequence[Attempt]) -> dict[str, Any]:
    """Return the figures of the attempts."""
    used = [[name for name, _, _ in calls_of(attempt.messages)] for attempt in made]
    n = len(made)
    return {
        "attempts": n,
        "success": round(sum(is_right(last_words(one.messages), one.mail.value) for one in made) / n, 4),
        "searched": round(sum("search" in names for names in used) / n, 4),
        "read": round(sum("read" in names for names in used) / n, 4),
        "boasted": round(sum(claimed(last_words(one.messages)) > 0 for one in made) / n, 4),
        "prefix breaks": sum(one.breaks for one in made),
    }


def pooled(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mean figures of several runs with equal numbers of attempts."""
    added = {"attempts", "prefix breaks"}
    return {
        name: sum(run[name] for run in runs) if name in added else round(sum(run[name] for run in runs) / len(runs), 4)
        for name in runs[0]
    }
