"""The words of the little language in which prompts and answers are written.

Owns: the lists. Refuses: sentences. The tiny model has read nothing else, so a word changed here needs a new model.
"""

from __future__ import annotations

from typing import Final

WORDS: Final = (
    "lamp", "tea", "moon", "river", "milk", "bread", "pear", "stone", "cloud", "glass", "train", "boat", "rain", "snow",
    "leaf", "wind", "bird", "fish", "salt", "door", "chair", "table", "road", "hill", "rope", "coin", "book", "song",
    "star", "tree", "sand", "wave", "fire", "gold", "bell", "ship", "farm", "lake", "nest", "seed",
)  # fmt: skip
MARKS: Final = (".", "!", ";")
TEXT_KEYS: Final = ("item", "name", "place")
NUMBER_KEYS: Final = ("count", "price", "size")
TRUTH_KEYS: Final = ("ready", "open", "new")
LIST_KEYS: Final = ("tags", "parts", "gifts")
