"""How many cases a property test tries.

A profile of hypothesis says it: `hone`, which pytest takes by itself and `make long` runs, tries all of them; `lean`
(`make test`) three tenths, `quick` (`make check`) a fifth. Owns: the share, for tests that name a number of their own.
"""

from __future__ import annotations

from hypothesis import settings


def scaled(cases: int) -> int:
    """The profile's share of so many cases; at least two."""
    return max(2, cases * settings.default.max_examples // 100)
