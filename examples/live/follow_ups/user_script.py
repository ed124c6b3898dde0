"""Who writes back, what, and how long after the answer. Pure and deterministic by seed.

Owns: the shares of users who write, who say the opposite of the truth, and who state the right answer; and the choice
of a phrasing. Refuses: sending (`examples.live.follow_ups.writers`), and the texts
(`examples.live.follow_ups.phrasings`).

What a user does follows from the seed and the user's number alone, not from the answers: the same users write back in
every arm that has the same shares.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from examples.live.follow_ups.phrasings import FIRST_HALF, SECOND_HALF

WRITE_SHARE: Final = 0.5  # of users write back
LIE_SHARE: Final = 0.15  # of what they write says the opposite of the truth
STATE_SHARE: Final = 0.2  # of users state the right answer, where corrections are taken
SOONEST_S, LATEST_S = 4.0, 9.0  # after the answer: when its trajectory has ended (`recorder.answered_idle_s`)
NO_ANSWER_S: Final = 10.0  # longer, if no answer came and Hone still waits for tools (`recorder.idle_timeout_s`)


@dataclass(frozen=True, slots=True)
class Shares:
    """The shares of users. `states` are taken first; of the other users, `writes` write back."""

    writes: float = WRITE_SHARE
    lies: float = LIE_SHARE
    states: float = 0.0


@dataclass(frozen=True, slots=True)
class UserIntent:
    """What one user does after the answer, whatever it is. `pick`: in 0..1, the place of a phrasing in its list."""

    writes: bool
    lies: bool
    states: bool
    after_s: float
    pick: float
    second_half: bool

    def text(self, *, right: bool) -> str:
        """Return what this user writes about a right or a wrong answer."""
        half = SECOND_HALF if self.second_half else FIRST_HALF
        texts = half.content if right != self.lies else half.discontent
        return texts[int(self.pick * len(texts))]


def user_intent(seed: int, number: int, shares: Shares, *, second_half: bool) -> UserIntent:
    """Return the intent of the user with this number. `second_half`: of the session."""
    chance = random.Random(f"{seed}/{number}")
    states, writes, lies, after, pick = (chance.random() for _ in range(5))
    stating = states < shares.states
    return UserIntent(
        writes=not stating and writes < shares.writes,
        lies=lies < shares.lies,
        states=stating,
        after_s=SOONEST_S + after * (LATEST_S - SOONEST_S),
        pick=pick,
        second_half=second_half,
    )
