"""What an engine does while it starts, read from the end of vLLM's log.

Owns: which of its lines tell something to somebody who waits. Refuses: the log file (`proxy.supervision.supervisor`).
"""

from __future__ import annotations

import re
from typing import Final

# What a line of the log means, the most telling first within a line. The last line that matches counts.
_PHASES: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"Loading safetensors checkpoint shards:\s*(\d+%)"), "loading the weights ({})"),
    (re.compile(r"(?:Downloading|Fetching) [^:]*:\s*(\d+%)"), "downloading the model ({})"),
    (re.compile(r"Downloading|Fetching \d+ files"), "downloading the model"),
    (re.compile(r"Capturing CUDA graphs[^:]*:\s*(\d+%)"), "capturing CUDA graphs ({})"),
    (re.compile(r"[Cc]apturing (?:CUDA|cudagraph)"), "capturing CUDA graphs"),
    (re.compile(r"Starting to load model"), "loading the weights"),
    (re.compile(r"Loading weights took|Model loading took"), "the weights are loaded"),
    (re.compile(r"(?<!disabling )torch\.compile|Dynamo bytecode|Compiling a graph"), "compiling the model"),
    (re.compile(r"KV cache"), "allocating the KV cache"),
    (re.compile(r"init engine \("), "the model is ready"),
    (re.compile(r"Starting vLLM (?:API )?server|Application startup"), "opening its port"),
    (re.compile(r"Initializing a V1 LLM engine|Resolved architecture"), "reading the model's configuration"),
)
FIRST: Final = "importing vLLM"  # before its first line that tells anything


def startup_phase(log: str) -> str:
    """Return what a starting engine does, from the last lines of its log."""
    for line in reversed(re.split(r"[\r\n]+", log)):
        for pattern, words in _PHASES:
            if (found := pattern.search(line)) is not None:
                return words.format(*found.groups())
    return FIRST
