"""What every test needs: property tests without a deadline, as two shared cores are slow and no test asserts a time.

`make check` tries fewer examples of each property (`--hypothesis-profile quick`) than `make test` and CI.
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("hone", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=20)
settings.load_profile("hone")
