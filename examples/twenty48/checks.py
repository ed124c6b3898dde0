"""The result of an attempt at 2048: its answers, replayed from its scenario's seed.

Owns two functions of a trajectory: ``reached``, which measures success, and ``reward``, which the campaign learns from.
Refuses to believe a transcript: boards and claims in it count for nothing, only the words that the model answered, each
parsed as the agent parsed it.
"""

from __future__ import annotations

from typing import Any

from examples.twenty48.episode import TARGET, Episode, replay

FOR_REACHING, FOR_THE_TILE, FOR_MOVING = 0.4, 0.1, 0.5


def reached(trajectory: Any) -> bool:
    """Whether the moves make the target's tile in time.

    Raises:
        ValueError: the attempt belongs to no scenario, so there is no board to play from.
    """
    return played(trajectory).reached


def reward(trajectory: Any) -> dict[str, float]:
    """0 to 1, as ``score``, with the numbers that it is made of beside it.

    0.4 for the target; 0.1 times the largest tile's face as a share of the target's; 0.5 times the share of answers
    that moved something. The last is so large because chance has the least part in it: which attempt throws turns away
    is seen at once, which one reaches the target for its moves only over many.

    Raises:
        ValueError: the attempt belongs to no scenario, so there is no board to play from.
    """
    episode = played(trajectory)
    tile = min(1.0, 2.0 ** (episode.largest - TARGET))
    moving = episode.moves / episode.turns if episode.turns else 0.0
    return {
        "score": FOR_REACHING * episode.reached + FOR_THE_TILE * tile + FOR_MOVING * moving,
        "reached": float(episode.reached),
        "largest_tile": float(2**episode.largest),
        "points": float(episode.score),
        "nothing_moved": float(episode.turns - episode.moves),
    }


def played(trajectory: Any) -> Episode:
    """The attempt that a trajectory's answers make.

    ``trajectory`` has ``messages`` (OpenAI's format) and ``scenario`` (``{"input": {"seed"}}``).

    Raises:
        ValueError: the attempt belongs to no scenario.
    """
    if not trajectory.scenario:
        raise ValueError("an attempt at 2048 is played again from its scenario's seed, and this one has no scenario")
    answers = (_said(message) for message in trajectory.messages if message.get("role") == "assistant")
    return replay(int(trajectory.scenario["input"]["seed"]), answers)


def _said(message: Any) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else ""
