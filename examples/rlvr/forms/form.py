"""The interface of a form.

Owns: the base class. Refuses: the forms' sentences.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import Self


class Form(ABC):
    """The form of one prompt, with its arguments."""

    @classmethod
    @abstractmethod
    def draw(cls, rng: random.Random) -> Self:
        """Return a form with random arguments."""

    @classmethod
    @abstractmethod
    def read(cls, prompt: str) -> Self | None:
        """Parse a prompt; None if it asks for another form."""

    @abstractmethod
    def prompt(self) -> str:
        """Return the prompt."""

    @abstractmethod
    def criteria(self) -> list[str]:
        """Return 10 to 30 sentences, each true or false of an answer by itself."""

    @abstractmethod
    def fulfilled_by(self, answer: str) -> bool:
        """Whether the whole answer is what the prompt asks for. It does not use the criteria."""
