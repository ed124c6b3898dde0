"""What a trainer is told of the engine whose answers it trains on.

Refuses: asking an engine (`trainer.step.engine_check`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trainer.batch.recorded_text import NO_PARSERS, Parsers


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What is known of the engine whose answers are trained on.

    `parsers`: of tool calls and reasoning, to compare answers with their ids (`trainer.batch.recorded_text`).
    `args`: vLLM's arguments, which tell whether it quantises (`trainer.step.engine_gap`). `share`: `engine.share`.
    `chat_template`: the file that replaces the base's own. `adapters_url`: where its hosts fetch adapters from
    (`adapters.url`); None: they read the data folder.
    """

    parsers: Parsers = NO_PARSERS
    args: Sequence[str] = ()
    share: str = "split"
    chat_template: Path | None = None
    adapters_url: str | None = None


NO_FACTS: Final = EngineFacts()
