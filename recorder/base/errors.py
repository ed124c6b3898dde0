"""The root of every package's errors, and the message and exit code of a failed command.

Owns: the exit codes, and which of them an error means. Refuses: the errors themselves (each package's `errors`).

HoneError
├── RecorderError
├── ProxyError
├── JudgeError
└── TrainerError
"""

from __future__ import annotations

from typing import ClassVar, Final

FAILED: Final = 1
MISCONFIGURED: Final = 2  # starting again would not change it; click uses it for wrong arguments too
PAUSED: Final = 3  # a campaign looked unhealthy and waits for a person
INTERRUPTED: Final = 130  # SIGINT or SIGTERM ended it
_TRAINING_MODULES: Final = frozenset({"torch", "transformers", "peft"})


class HoneError(Exception):
    """An expected error. The message says what, where and what to do; a command prints it as one line."""

    exit_code: ClassVar[int] = FAILED


def explain(error: BaseException) -> tuple[str, int] | None:
    """Return the message and the exit code of an expected error, or None for a bug."""
    if isinstance(error, ModuleNotFoundError) and error.name in _TRAINING_MODULES:
        need = f"{error.name} is not installed: training needs `pip install 'hone-proxy[cpu]'` (or [cuda], on a GPU)."
        return need, FAILED
    return (str(error), error.exit_code) if isinstance(error, HoneError) else None
