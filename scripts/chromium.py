"""The system's Chromium, without a window, as Playwright drives it.

Owns: which one that is, and how it is started: nothing of it asks anybody else. Refuses: what is done with it.
"""

from __future__ import annotations

import shutil
from typing import Final

from playwright.async_api import Browser, Playwright

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
# Playwright adds --headless and --no-sandbox, and a new folder for everything that a browser keeps.
FLAGS: Final = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class NoBrowser(Exception):
    """There is no Chromium here."""


def found() -> str:
    """Where it is. Raises NoBrowser."""
    for name in NAMES:
        path = shutil.which(name)
        if path is not None:
            return path
    raise NoBrowser("no Chromium is on PATH: install it (Debian's package is `chromium`)")


async def start(playwright: Playwright) -> Browser:
    """A browser of its own. Raises NoBrowser."""
    return await playwright.chromium.launch(executable_path=found(), headless=True, args=FLAGS)
