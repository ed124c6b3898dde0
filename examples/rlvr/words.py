"""The words of the small language in which prompts and answers are written.

Owns: the lists. Refuses: sentences. The tiny model was trained on nothing else, so a changed word needs a new model.
"""

from __future__ import annotations

from typing import Final

# Eight lists of five. Each place of a prompt draws from its own list: choosing one of five words by its place is easier
# for a tiny model than copying any word from anywhere.
LISTS: Final = (
    ("lamp", "glass", "chair", "table", "door"),
    ("tea", "milk", "bread", "pear", "salt"),
    ("moon", "star", "cloud", "rain", "snow"),
    ("train", "boat", "ship", "road", "wave"),
    ("bird", "fish", "leaf", "tree", "seed"),
    ("river", "hill", "lake", "farm", "sand"),
    ("coin", "book", "bell", "rope", "song"),
    ("fire", "gold", "wind", "stone", "nest"),
)
WORDS: Final = tuple(word for words in LISTS for word in words)
MARKS: Final = (".", "!", ";")
TEXT_KEYS: Final = ("item", "name", "place")
NUMBER_KEYS: Final = ("count", "price", "size")
TRUTH_KEYS: Final = ("ready", "open", "new")
LIST_KEYS: Final = ("tags", "parts", "gifts")
