"""Write the instructions as scenario files (docs/rlvr.md): a prompt, and criteria that Hone's rules decide.

    python -m examples.smollm.tasks FOLDER [--seed 7]

Owns: the kinds (which constraints go together), the topics, the parts and the files' format. 40 kinds are trained; 10
are only measured: five have a constraint that no trained kind has, five join trained ones that never go together in
training. No topic is in two parts. Refuses: the constraints (`examples.smollm.constraints`).
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from examples.smollm.constraints import CONSTRAINTS, substance

SEED: Final = 7
TRAINED: Final[tuple[tuple[str, ...], ...]] = (
    ("at_most",), ("at_least",), ("between",), ("sentences",), ("lines",), ("dashes",), ("numbered",), ("separated",),
    ("begins",), ("ends",), ("includes",), ("avoids",), ("letter",), ("heading",), ("json",), ("lower",), ("capitals",),
    ("title",), ("no_commas",), ("no_stops",), ("digits",), ("quotes",), ("brackets",), ("question",), ("exclaims",),
    ("asks",),
    ("lower", "at_most"), ("begins", "ends"), ("includes", "no_commas"), ("avoids", "at_most"),
    ("question", "at_most"), ("dashes", "lower"), ("sentences", "no_commas"), ("includes", "question"),
    ("begins", "at_most"), ("letter", "exclaims"), ("quotes", "at_most"), ("no_digits", "between"),
    ("lower", "no_stops"), ("asks", "question"),
)  # fmt: skip
UNTRAINED: Final[tuple[tuple[str, ...], ...]] = (
    ("hashtag",), ("semicolon",), ("bold",), ("closing",), ("twice",),
    ("includes", "lower"), ("exclaims", "at_most"), ("begins", "no_commas"), ("avoids", "sentences"),
    ("capitals", "at_most"),
)  # fmt: skip
# Each topic is one word that a small model knows, in the form in which it is named.
TRAIN_TOPICS: Final = (
    "honey", "rain", "bread", "snow", "river", "garden", "bicycle", "piano", "coffee", "winter", "chess", "horse",
    "island", "candle", "forest", "bridge", "kitchen", "football", "library", "market", "mirror", "mountain", "ocean",
    "painting", "paper", "pencil", "potato", "rainbow", "school", "silver", "soup", "spider", "storm", "summer",
    "sugar", "theater", "tiger", "train", "tree", "umbrella", "village", "violin", "volcano", "whale", "window",
    "wolf", "wool", "yogurt", "zebra", "airport", "banana", "beach", "camera", "castle", "cheese", "clock", "cloud",
    "desert", "dragon", "elephant",
)  # fmt: skip
VALIDATION_TOPICS: Final = ("apple", "butter", "dolphin", "guitar", "hospital", "moon", "pumpkin", "ship")
TEST_TOPICS: Final = (
    "tea", "salt", "ice", "sleep", "music", "lemon", "rabbit", "robot", "carrot", "penguin", "hammer", "basketball",
    "museum", "tornado", "chocolate", "lighthouse", "owl", "rice", "kite", "cactus",
)  # fmt: skip
# Constraints that one short sentence cannot keep.
LONGER: Final = frozenset({"at_least", "sentences", "lines", "dashes", "numbered", "separated", "json"})
LEARN_EACH, VALIDATION_EACH, TEST_EACH = 12, 2, 10  # instructions of a kind
UNTRAINED_EACH: Final = 20


@dataclass(frozen=True, slots=True)
class Files:
    """The paths of the parts: for training, for validation, and for the end."""

    learn: Path
    validation: Path
    test: Path


def files(folder: Path) -> Files:
    """Return the parts' files in a folder."""
    return Files(folder / "learn.jsonl", folder / "validation.jsonl", folder / "test.jsonl")


def name_of(kind: Sequence[str]) -> str:
    """Return a kind's name."""
    return "+".join(kind)


def kind_of(scenario: str) -> str:
    """Return the kind's name of a scenario's id."""
    return scenario.partition(".")[0].replace("_and_", "+")


def instruction(kind: Sequence[str], topic: str, rng: random.Random) -> dict[str, Any]:
    """Return one instruction as a line of a scenario file."""
    demands = {name: CONSTRAINTS[name](rng, topic) for name in kind}
    asked = " ".join(demand.sentence for demand in demands.values())
    opening = "Write about" if LONGER & set(kind) else "Write one short sentence about"
    criteria = {**demands, "substance": substance(topic)}
    return {
        "id": f"{'_and_'.join(kind)}.{topic}",
        "input": f"{opening} {topic}. {asked}",
        "rubric": [{"id": name, "text": one.sentence, "check": one.check} for name, one in criteria.items()],
    }


def instructions(
    kinds: Sequence[Sequence[str]], topics: Sequence[str], each: int, rng: random.Random
) -> Iterator[dict[str, Any]]:
    """Yield `each` instructions of every kind, each about another topic."""
    for kind in kinds:
        for topic in rng.sample(topics, each):
            yield instruction(kind, topic, rng)


def write(folder: Path, seed: int = SEED) -> Files:
    """Write the three parts, the same for the same seed. Existing files are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    rng, found = random.Random(seed), files(folder)
    learn = list(instructions(TRAINED, TRAIN_TOPICS, LEARN_EACH, rng))
    validation = list(instructions(TRAINED, VALIDATION_TOPICS, VALIDATION_EACH, rng))
    test = [
        *instructions(TRAINED, TEST_TOPICS, TEST_EACH, rng),
        *instructions(UNTRAINED, TEST_TOPICS, UNTRAINED_EACH, rng),
    ]
    for path, part in ((found.learn, learn), (found.validation, validation), (found.test, test)):
        path.write_text("".join(json.dumps(one) + "\n" for one in part), encoding="utf-8")
    return found


def main() -> None:
    """Write the parts and print their paths."""
    parser = argparse.ArgumentParser(description="Write instructions whose criteria code checks.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=SEED, help=f"seed: another one gives other instructions ({SEED})")
    given = parser.parse_args()
    found = write(given.folder, given.seed)
    print(f"{found.learn}\n{found.validation}\n{found.test}")


if __name__ == "__main__":
    main()
