"""What the tests of scoring share: a judge context, with reward functions to call."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from judge.rewards.judge_context import JudgeContext
from judge.scoring.setup import open_judge_context
from judge.settings import JudgeSettings
from recorder.store.database import Project, Store
from tests.judge.recorded import PROJECT

Make = Callable[..., JudgeSettings]


CHECKS = """
def right(t):
    return float("right" in t.answer)

def picky(t):
    if "odd" in t.answer:
        raise ValueError("no idea what this is")
    return {"score": 1, "words": len(t.answer.split())}

def honest(t):
    return float(t.answer.split()[-1])

def broken(t):
    raise RuntimeError("always")

def rude(t):
    return "idiot" in t.answer
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "checks.py").write_text(CHECKS)
    return tmp_path


@pytest.fixture
def judging(store: Store, settings: Make, folder: Path) -> Callable[..., Any]:
    """Open a judge context under some settings."""

    @asynccontextmanager
    async def opened(**more: Any) -> AsyncIterator[JudgeContext]:
        async with open_judge_context(settings(folder=folder, **more), Project(store, PROJECT)) as context:
            yield context

    return opened
