"""The form in which settings and rubrics name a user's function: `package.module:function`, or `module:Class.method`.

Owns: this form. Refuses: importing the function (`recorder.processes.user_code_host`). It imports the standard library
alone, since settings are read with it.
"""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = r"[A-Za-z_]\w*"
_PATH: Final = re.compile(rf"{_NAME}(\.{_NAME})*:{_NAME}(\.{_NAME})*")


def is_function_path(text: str) -> bool:
    """Return whether `text` has the form `package.module:function`."""
    return _PATH.fullmatch(text) is not None
