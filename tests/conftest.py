"""What every test needs: property tests without a deadline, as two shared cores are slow and no test asserts a time.

`make check` tries fewer examples of each property (`--hypothesis-profile quick`) than `make test` and CI.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import settings

from judge.llm import pace

settings.register_profile("hone", deadline=None)
settings.register_profile("quick", deadline=None, max_examples=20)
settings.load_profile("hone")


@pytest.fixture(autouse=True)
def _no_judge_is_held() -> Iterator[None]:
    """A judge that a test's server told to wait is held for the whole process, and a later server may get its port."""
    yield
    pace.shared.cache_clear()
