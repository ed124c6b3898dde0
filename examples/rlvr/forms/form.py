"""The interface of a form.

Owns: the base class. Refuses: any form's own words.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import Self


class Form(ABC):
    """What one prompt asks for."""

    @classmethod
    @abstractmethod
    def draw(cls, rng: random.Random) -> Self:
        """One with random arguments."""

    @classmethod
    @abstractmethod
    def read(cls, prompt: str) -> Self | None:
        """What a prompt asks for, if it asks for this form."""

    @abstractmethod
    def prompt(self) -> str:
        """How it is asked for."""

    @abstractmethod
    def criteria(self) -> list[str]:
        """10 to 30 sentences, each true or false of an answer by itself."""

    @abstractmethod
    def fulfilled_by(self, answer: str) -> bool:
        """Whether an answer is what was asked for, as a whole. Looks at no criterion."""
