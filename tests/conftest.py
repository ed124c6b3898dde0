"""What every test needs: property tests without a deadline, as two shared cores are slow and no test asserts a time."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("hone", deadline=None)
settings.load_profile("hone")
