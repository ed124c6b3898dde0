"""How many cases a property test tries.

The profile of hypothesis decides: `hone`, pytest's default and that of `make long`, tries all of them, `lean`
(`make test`) three tenths, `quick` (`make check`) a fifth and `statements` (`make test` on PostgreSQL) a tenth.
Owns: that share, for tests with a number of their own.
"""

from __future__ import annotations

from hypothesis import settings


def scaled(cases: int) -> int:
    """Return the current profile's share of `cases`, at least two."""
    return max(2, cases * settings().max_examples // 100)
