"""Measure a tiny model at the game with plain transformers, and the scripted players for comparison.

Owns the attempts, all in one batch, at temperature 1. It needs neither an engine nor servers.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from examples.making.sampling import heard, sample
from examples.making.tokenizer import Message, render
from examples.twenty48.agent import MAX_TOKENS
from examples.twenty48.episode import Episode, begin
from examples.twenty48.players import Player, play
from examples.twenty48.taught import opening


@dataclass(slots=True)
class _Attempt:
    episode: Episode
    messages: list[Message] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)  # prompt and sample of the newest turn
    breaks: int = 0  # turns whose prompt does not begin with the ids before

    def ask(self, tokenizer: Any) -> list[int]:
        prompt = render(tokenizer, self.messages, [], ask=True)
        self.breaks += prompt[: len(self.tokens)] != self.tokens
        return prompt

    def hear(self, tokenizer: Any, prompt: list[int], sampled: list[int]) -> None:
        self.tokens = prompt + sampled
        turn = heard(tokenizer, sampled)
        self.episode = self.episode.hear(turn["content"] or "")
        self.messages += [turn, {"role": "user", "content": self.episode.shown()}]


def of_model(model: Any, tokenizer: Any, seeds: Sequence[int], chance: int) -> dict[str, Any]:
    """Measure one attempt from each seed. `chance` seeds the sampling."""
    torch.manual_seed(chance)
    attempts = [_Attempt(begin(seed)) for seed in seeds]
    for attempt in attempts:
        attempt.messages = opening(attempt.episode)
    while running := [attempt for attempt in attempts if not attempt.episode.over]:
        prompts = [attempt.ask(tokenizer) for attempt in running]
        for attempt, prompt, sampled in zip(
            running, prompts, sample(model, tokenizer, prompts, MAX_TOKENS), strict=True
        ):
            attempt.hear(tokenizer, prompt, sampled)
    episodes = [attempt.episode for attempt in attempts]
    return {**told(episodes), "prefix breaks": sum(attempt.breaks for attempt in attempts)}


def of_player(player: Player, seeds: Sequence[int], chance: int) -> float:
    """Return the share of seeds from which a player reaches the target."""
    rng = random.Random(chance)
    return share([play(player, begin(seed), rng) for seed in seeds])


def told(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Return the figures of ended attempts."""
    turns = sum(episode.turns for episode in episodes)
    return {
        "success": share(episodes),
        "attempts": len(episodes),
        "turns": turns,
        "turns that moved nothing": turns - sum(episode.moves for episode in episodes),
    }


def share(episodes: Sequence[Episode]) -> float:
    """Return the share of attempts that reached the target."""
    return round(sum(episode.reached for episode in episodes) / len(episodes), 4)
