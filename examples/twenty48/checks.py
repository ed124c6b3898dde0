"""The result of an attempt at 2048: its answers, replayed from its scenario's seed.

Owns two functions of a trajectory: ``reached``, which measures success, and ``reward``, which the campaign learns from.
Boards and claims in a transcript do not count: only the model's own words do, each parsed as the agent parsed it.
"""

from __future__ import annotations

from typing import Any

from examples.twenty48.episode import TARGET, Episode, replay

FOR_REACHING, FOR_THE_TILE, FOR_MOVING = 0.4, 0.1, 0.5


def reached(trajectory: Any) -> bool:
    """Whether the moves reach the target tile within the allowed turns.

    Raises:
        ValueError: the attempt has no scenario, and so no board.
    """
    return played(trajectory).reached


def reward(trajectory: Any) -> dict[str, float]:
    """Return ``score``, 0 to 1, and its parts as extra numbers.

    0.4 for the target; 0.1 times the largest tile as a share of the target; 0.5 times the share of answers that moved
    something. The last weight is so large because this part depends least on chance: wasted turns show in every
    attempt, and the merit of moves only over many attempts.

    Raises:
        ValueError: the attempt has no scenario, and so no board.
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
    """Replay a trajectory's answers; return the attempt.

    ``trajectory`` has ``messages`` (OpenAI's format) and ``scenario`` (``{"input": {"seed"}}``).

    Raises:
        ValueError: the attempt has no scenario.
    """
    if not trajectory.scenario:
        raise ValueError("an attempt at 2048 is replayed from its scenario's seed, and this one has no scenario")
    answers = (_said(message) for message in trajectory.messages if message.get("role") == "assistant")
    return replay(int(trajectory.scenario["input"]["seed"]), answers)


def _said(message: Any) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else ""
