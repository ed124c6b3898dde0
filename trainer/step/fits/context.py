"""What conversations become rows with: the alias, its base, and the base's chat template.

Owns: loading the template once. Refuses: which conversations (the readers), and rows (`trainer.demonstrations.rows`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from recorder.registry.aliases import AliasView
from recorder.store.database import Project
from trainer.batch.recorded_text import TextCheck
from trainer.batch.rows import FitsAlone
from trainer.demonstrations.chat_template import ChatTemplate
from trainer.errors import TrainerError
from trainer.objectives.imitate_rows import ImitateBasis

Run = Callable[..., Awaitable[Any]]


class RowContext:
    """What rows of an alias are made with. `template_file`: the engine's chat template, if it is not the base's."""

    def __init__(
        self, project: Project, alias: AliasView, base: Path, template_file: Path | None, run: Run = asyncio.to_thread
    ) -> None:
        """`run`: runs work that takes long, off the event loop."""
        self.project = project
        self.alias = alias
        self.run = run
        self._base = base
        self._template_file = template_file
        self._template: ChatTemplate | None = None
        self._why_no_template: TrainerError | None = None

    def basis(
        self, fingerprint: str | None, max_tokens: int, text: TextCheck | None, fits_alone: FitsAlone | None = None
    ) -> ImitateBasis:
        """Return what rows are made with. It may load the tokenizer: not for the event loop."""
        template = self._load_template()
        tool_mark = None if template is None else template.tool_mark
        return ImitateBasis(fingerprint, max_tokens, text, tool_mark, fits_alone)

    async def find_template(self) -> ChatTemplate | None:
        """Return the template, or None if the base has none."""
        found: ChatTemplate | None = await self.run(self._load_template)
        return found

    async def require_template(self) -> ChatTemplate:
        """Return the template. Raises `TrainerError` if the base has none."""
        found = await self.find_template()
        if found is None:
            assert self._why_no_template is not None
            raise self._why_no_template
        return found

    def _load_template(self) -> ChatTemplate | None:
        if self._template is None and self._why_no_template is None:
            try:
                self._template = ChatTemplate(self._base, self._template_file)
            except TrainerError as e:
                self._why_no_template = e
        return self._template
