"""What users write back: phrasings of "that was right" and "that was wrong", in two halves that share none.

Owns: the texts. Refuses: who writes, and when (`examples.live.follow_ups.user_script`). No text is a plain thank-you or
a repeated question, which Hone decides by rules: each is for the reader, so its error rate holds for all of them. No
text has a fact about an order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Phrasings:
    """The texts of one half of a session. `content`: of users who say that the answer was right."""

    content: tuple[str, ...]
    discontent: tuple[str, ...]


FIRST_HALF: Final = Phrasings(
    content=(
        "Good, that is what I wanted to know.",
        "Right, I see the same on the note from the carrier.",
        "That helps me, I will be at home then.",
        "Fine, I can plan with that.",
        "Great news, I had hoped for this.",
        "Thanks, this answers my question.",
        "Yes, the shop told me the same.",
        "Good to hear, you solved my problem.",
    ),
    discontent=(
        "No, that is wrong.",
        "That cannot be right.",
        "This does not answer my question.",
        "You are mistaken about my order.",
        "I still do not know when it comes.",
        "That is not what the note from the carrier says.",
        "Wrong, please look at it again.",
        "No, the shop told me something different.",
    ),
)
SECOND_HALF: Final = Phrasings(
    content=(
        "Lovely, my neighbour heard the same from the driver.",
        "Exactly what I was looking for.",
        "Perfect, then I stay in and wait for the bell.",
        "Excellent service, I tell my friends.",
        "Correct, that matches the message on my phone.",
        "Wonderful, now I can order the next one.",
        "I am happy with this answer.",
        "It matches, you may close the case.",
    ),
    discontent=(
        "Nonsense, have another look.",
        "I am afraid you are incorrect.",
        "Sorry, this is useless to me.",
        "That contradicts the message on my phone.",
        "Are you guessing? I doubt it.",
        "My neighbour laughs at this answer, it is false.",
        "I am disappointed, nobody told me when it comes.",
        "Check your records, this is a mistake.",
    ),
)
