"""The generated part of a page that people write: the text between two marks.

Owns: the marks' form, and finding them. Refuses: the text between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Marks:
    """Two comments in a Markdown page; `by`: the command that writes the text between them."""

    by: str

    @property
    def begin(self) -> str:
        """Return the comment before the text."""
        return f"<!-- made by `{self.by}` -->"

    @property
    def end(self) -> str:
        """Return the comment after the text; other parts use the same one."""
        return "<!-- until here -->"

    def put(self, page: str, made: str) -> str:
        """Return a page's text with `made` between the marks. Raises ValueError if the page has no marks."""
        before, begin, rest = page.partition(self.begin)
        _, end, after = rest.partition(self.end)
        if not begin or not end:
            raise ValueError(f"the page has no marks for the output of `{self.by}`: add {self.begin} and {self.end}")
        return f"{before}{begin}\n\n{made.strip()}\n\n{end}{after}"

    def write(self, page: Path, made: str) -> None:
        """Write `made` between the marks of a file. Raises ValueError as `put` does."""
        page.write_text(self.put(page.read_text("utf-8"), made), "utf-8")
