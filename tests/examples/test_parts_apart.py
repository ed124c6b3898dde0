"""Of any seed: nothing that is learned from is measured with, by Hone's own look and by what each example is about."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.inbox import scenarios as inbox
from examples.inbox.mails import make_mailbox
from examples.rlvr import tasks as rlvr
from examples.twenty48 import scenarios as twenty48
from examples.twenty48.episode import begin
from examples.twenty48.taught import FIRST_SEED
from trainer.tasks import scenarios
from trainer.tasks import selection as splitting
from trainer.tasks.scenarios import Scenario

SEEDS = st.integers(0, 2**32)
Parts = dict[str, list[Scenario]]


def apart(files: Any, names: tuple[str, str, str]) -> Parts:
    parts = {
        part: scenarios.read_scenarios(getattr(files, name)) for part, name in zip(splitting.PARTS, names, strict=True)
    }
    splitting.require_apart(parts)
    assert len(parts["test"]) >= 100
    return parts


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(SEEDS)
def test_no_mail_and_no_thread_is_asked_about_in_two_parts(seed: int) -> None:
    with TemporaryDirectory() as folder:
        parts = apart(inbox.write(Path(folder), seed), ("train", "val", "test"))
    mailbox = make_mailbox(seed)
    assert len(mailbox.mails) >= 500
    threads = {part: {(mail.sender, mail.project) for mail in getattr(mailbox, part)} for part in parts}
    assert sum(map(len, threads.values())) == len(set().union(*threads.values()))
    asked = {part: {mail.mail_id for mail in getattr(mailbox, part)} for part in parts}
    assert asked == {part: {one.id.removeprefix("mail-") for one in found} for part, found in parts.items()}


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(SEEDS)
def test_no_prompt_is_in_two_parts_and_each_has_10_to_30_criteria(seed: int) -> None:
    with TemporaryDirectory() as folder:
        parts = apart(rlvr.write(Path(folder), seed), ("learn", "validation", "test"))
    assert all(rlvr.is_campaigns(one.input) for found in parts.values() for one in found)
    assert all(10 <= len(one.rubric) <= 30 for found in parts.values() for one in found)


@pytest.mark.slow
@settings(max_examples=5, deadline=None)
@given(SEEDS)
def test_no_board_is_in_two_parts_and_no_seed_is_the_making_s(seed: int) -> None:
    with TemporaryDirectory() as folder:
        parts = apart(twenty48.write_scenarios(Path(folder), seed), ("learn", "validate", "test"))
    seeds = [one.input["seed"] for found in parts.values() for one in found]
    assert max(seeds) < FIRST_SEED
    assert len({begin(one).board for one in seeds}) == len(seeds)
