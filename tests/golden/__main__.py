"""Write the golden files: `python -m tests.golden --write` into the tree, `python -m tests.golden FOLDER` elsewhere.

Runs in a process of its own, since it fixes the clock and all randomness for good.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.golden.steady import make_steady

FILES = Path(__file__).parent / "files"


def main(to: Path) -> None:
    """Write all files into a folder, which must not be there."""
    for name in [name for name in os.environ if name.upper().startswith("HONE_")]:
        del os.environ[name]
    os.environ |= {"COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb", "OPENAI_API_KEY": "none"}
    make_steady()
    from tests.golden import faces, stores  # what they import must see the steady clock

    with tempfile.TemporaryDirectory() as name:
        here = Path(name)
        (here / "work").mkdir()
        os.chdir(here / "work")

        async def write() -> None:
            await faces.write_all(await stores.make(here), here / "work", to)

        asyncio.run(write())


if __name__ == "__main__":
    if "--write" in sys.argv:
        shutil.rmtree(FILES, ignore_errors=True)
        main(FILES)
    else:
        main(Path(sys.argv[1]).absolute())
