"""`hone review`: two runs side by side on a real terminal, a word each, kept as feedback; nobody asked without one."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recorder.queue import claims, feedback
from recorder.queue.feedback import Feedback
from recorder.queue.judging import scores
from recorder.queue.judging.scores import NewPart
from recorder.store.database import Store
from tests.recorder.attempts import group_of
from tests.recorder.commands.hone import Hone
from tests.recorder.rows import Rows
from tests.recorder.score_rows import new_score
from tests.recorder.views.review.waiting import scored_task, two_versions

WAITS_S = 60.0
ASKS = "Which is better?"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


async def waiting(store: Store, runs: int = 2) -> tuple[str, list[str]]:
    """A group about which judges disagree, whose runs said hostile things."""
    group, ids = await group_of(
        store, [[("find", {"q": str(at)}, f"depot {at}\x1b[2J"), f"answer {at}"] for at in range(runs)]
    )
    claim = await claims.claim_one_for_judging(store, group, "judge", 60)
    assert claim is not None
    parts = [NewPart(id_, "reward", 0.5, explanation="the judge's own words") for id_ in ids]
    new = new_score("recipe", parts=parts, agreement=0.1, disputed="they disagree", judge_model="judge-model")
    await scores.record_score(store, claim, new)
    return group, ids


def said_of(hone: Hone, ids: list[str]) -> list[Feedback]:
    """What was said of these runs."""

    async def read(store: Store) -> list[Feedback]:
        return [one for id_ in ids for one in await feedback.list_feedback(store, id_)]

    found: list[Feedback] = hone.do(read)
    return found


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, master: int) -> None:
        self._master = master
        self.shown = ""

    def until(self, words: str, since: int = 0) -> str:
        """What is shown until these words are; from a place in all that was shown on."""
        ends = time.monotonic() + WAITS_S
        while words not in self.shown[since:]:
            ready, _, _ = select.select([self._master], [], [], max(0.0, ends - time.monotonic()))
            assert ready, f"{words!r} did not come:\n{self.shown}"
            try:
                read = os.read(self._master, 65536)
            except OSError:  # the program has ended
                read = b""
            assert read, f"it ended before {words!r}:\n{self.shown}"
            self.shown += read.decode("utf-8", "replace")
        return self.shown[since:]

    def says(self, words: str) -> int:
        """Type a line; the place in what is shown from which the answer to it comes."""
        at = len(self.shown)
        os.write(self._master, f"{words}\n".encode())
        return at


@contextmanager
def on_a_terminal(data: Path, *arguments: str) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (50, 120))
    command = [sys.executable, "-m", "proxy.cli", "review", "--data", str(data), *arguments]
    child = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    try:
        yield Terminal(master)
        assert child.wait(WAITS_S) == 0
    finally:
        child.kill()
        child.wait()
        os.close(master)


@pytest.mark.slow
def test_two_runs_are_shown_blind_and_the_answer_is_kept(hone: Hone) -> None:
    group, ids = hone.do(waiting)
    with on_a_terminal(hone.data) as terminal:
        shown = ESCAPES.sub("", terminal.until(ASKS))
        assert "both begin with the same 2 messages" in shown
        assert "The judges agree by 0.10 about the group" in shown
        assert "depot 0␛[2J" in shown
        assert "answer 1" in shown
        for hidden in ("judge-model", "own words", "reward", *ids):
            assert hidden not in shown
        terminal.says("a")
        terminal.until("1 group waits for a person because judges disagree")
        assert "1 answer stored" in terminal.shown
    [one] = said_of(hone, ids)
    better = next(id_ for id_ in ids if one.trajectory_id == id_)
    [worse] = set(ids) - {better}
    assert (one.name, one.value) == ("preference", True)
    assert one.tags == {"loser": worse, "group": group, "by": "somebody on this machine", "shown": "first"}


@pytest.mark.slow
def test_a_pair_is_skipped_a_word_that_is_none_is_asked_again_and_who_quits_loses_nothing(hone: Hone) -> None:
    _, ids = hone.do(lambda store: waiting(store, 3))
    with on_a_terminal(hone.data, "--as", "anna") as terminal:
        terminal.until(ASKS)
        at = terminal.says("perhaps")
        terminal.until(ASKS, at)
        assert "Answer one of a, b, same, skip, quit." in terminal.shown[at:]
        at = terminal.says("skip")
        terminal.until(ASKS, at)
        at = terminal.says("same")
        terminal.until(ASKS, at)
        terminal.says("q")
        terminal.until("1 answer stored")
    [one] = said_of(hone, ids)
    assert (one.name, one.tags["by"]) == ("tie", "anna")


@pytest.mark.slow
def test_the_end_of_the_input_is_enough_too(hone: Hone) -> None:
    hone.do(waiting)
    with on_a_terminal(hone.data) as terminal:
        terminal.until(ASKS)
        terminal.says("\x04")
        terminal.until("0 answers stored.")


def test_without_a_terminal_nobody_is_asked(hone: Hone) -> None:
    hone.do(waiting)
    assert "run it in a terminal. --json lists the pairs that wait." in hone("review", fails=True).output


def test_what_waits_is_listed_as_json_with_why(hone: Hone) -> None:
    group, ids = hone.do(waiting)
    found = hone.json("review")
    assert (found["disputed"], found["answered"], found["against"]) == (1, 0, None)
    [entry] = found["entries"]
    assert (entry["why"], entry["group_id"], entry["external_id"]) == ("disagreement", group, "orders")
    assert {entry["first"], entry["second"]} == set(ids)
    assert hone.json("review", "--group", "orders")["entries"] == [entry]
    hone("review", "--group", "nothing", "--json", fails=True)


def test_a_group_and_a_version_are_not_asked_for_together(hone: Hone) -> None:
    hone("review", "--group", "g", "--against", "base", "--json", fails=True)


async def apart(store: Store) -> None:
    """Three tasks that the base and the live version attempted."""
    rows = Rows(store)
    alias, base, live = await two_versions(rows)
    for task in ("one", "two", "three"):
        for version in (base, live):
            await scored_task(rows, alias, version, task, 0.0)


@pytest.mark.slow
def test_live_against_base_ends_with_the_win_rate_and_its_interval(hone: Hone) -> None:
    hone.do(apart)
    with on_a_terminal(hone.data, "--against", "base", "--pairs", "2") as terminal:
        terminal.until(ASKS)
        at = terminal.says("same")
        terminal.until(ASKS, at)
        terminal.says("=")
        told = " ".join(ESCAPES.sub("", terminal.until("0 lost.")).split())
        assert "helpdesk@1 wins 50% against helpdesk@0 (95 %: 9% to 91%). 2 pairs: 0 won, 2 tied, 0 lost." in told
    found = hone.json("review", "--against", "helpdesk@0")
    assert (len(found["entries"]), found["answered"], found["against"]["rate"]) == (1, 2, 0.5)
