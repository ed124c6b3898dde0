"""What is kept beside a call's messages, in its `response_meta`, and reading it back.

Owns: the names of these entries, and how what a choice said beside its message is found. Refuses: which fields of a
message are kept here (`recorder.content.canonical`), and what dialects keep in `response_meta` for themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

CHOICE_EXTRAS: Final = "choice_extras"  # what each choice said beside its message (reasoning …), by its index as text
LEFT_OUT_TOOLS: Final = "left_out_tools"  # types of tools that the client declared and the model did not get
LEFT_OUT_ITEMS: Final = "left_out_items"  # types of what the conversation tells and the model was not shown
CLIENT: Final = "client"  # the product that its User-Agent named
STATED_KIND: Final = "stated_kind"  # the client said what kind of turn it was


def beside(meta: Mapping[str, Any] | None, index: int) -> Mapping[str, Any]:
    """What a choice of a call with this `response_meta` said beside its message; empty where nothing."""
    kept: Mapping[str, Mapping[str, Any]] = (meta or {}).get(CHOICE_EXTRAS, {})
    return kept.get(str(index), {})
