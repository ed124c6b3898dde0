"""The part of a page that a program makes, in a page that people write: what stands between two marks.

Owns: the marks' form, and finding them. Refuses: what is put there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Marks:
    """Two comments in a Markdown page; `by`: the command that makes what stands between them."""

    by: str

    @property
    def begin(self) -> str:
        """The comment before it."""
        return f"<!-- made by `{self.by}` -->"

    @property
    def end(self) -> str:
        """The comment behind it, which may be that of other parts too."""
        return "<!-- until here -->"

    def put(self, page: str, made: str) -> str:
        """A page's text with this between the marks. Raises ValueError where the page lacks them."""
        before, begin, rest = page.partition(self.begin)
        _, end, after = rest.partition(self.end)
        if not begin or not end:
            raise ValueError(
                f"the page has no place for what `{self.by}` makes: put {self.begin} and {self.end} into it"
            )
        return f"{before}{begin}\n\n{made.strip()}\n\n{end}{after}"

    def write(self, page: Path, made: str) -> None:
        """Put it into a file. Raises ValueError as `put` does."""
        page.write_text(self.put(page.read_text("utf-8"), made), "utf-8")
