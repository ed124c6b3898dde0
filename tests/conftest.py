"""What every test needs: property tests without a deadline, because CI's two cores are shared and tests assert no time."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("hone", deadline=None)
settings.load_profile("hone")
