"""The fixed text after which logprobs of engine and trainer are compared before anything is sampled.

Owns: the text, and which tokens are named. Refuses: asking an engine (`proxy.doctor.logprobs`), and computing
(`trainer.step.engine_check`, `trainer.quantization.copy_gap`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

FIXED_TEXT: Final = "The order was shipped on Monday and arrived on Tuesday. The customer asked when the"
_MOST_NAMED: Final = 16


def named_tokens(prompt_ids: Sequence[int]) -> list[int]:
    """The tokens whose logprobs after the text are compared: the first ones of the text itself, each once."""
    return list(dict.fromkeys(prompt_ids))[:_MOST_NAMED]
