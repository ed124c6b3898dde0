"""docs/reasons.md: the table of `recorder/reasons.py` as a page.

python -m scripts.reasons            print it
python -m scripts.reasons --write    write it
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from recorder.reasons import REASONS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reasons.md"
_HEAD = """\
# Reasons

**For:** operators who see a reason code. **You will have:** its meaning in one sentence.

Whatever Hone excludes, postpones or refuses has a reason code: in `hone ledger`, in the *why* of `hone groups` and
`hone trajectories`, in `hone show`. `hone ledger --counts` counts them. (Made from `recorder/reasons.py` by
`python -m scripts.reasons --write`.)
"""


def page() -> str:
    """Return the whole page."""
    return "\n".join([_HEAD, *_sections()])


def _sections() -> Iterator[str]:
    for title, sentences in REASONS.items():
        yield f"## {title}\n"
        yield "| code | meaning |\n|---|---|"
        yield from (f"| `{code}` | {sentence} |" for code, sentence in sentences.items())
        yield ""


if __name__ == "__main__":
    if "--write" in sys.argv:
        PAGE.write_text(page())
    else:
        sys.stdout.write(page())
