"""Why a group could not be judged, how often that was tried, and when it is next."""

from __future__ import annotations

from recorder.queue import claims
from recorder.queue.judging import scores
from recorder.store.database import Store
from recorder.views.status.judging import JudgingFailure, find_judging_failure
from tests.recorder.rows import Rows


async def test_an_unscored_group_says_why_how_often_and_when_next(store: Store) -> None:
    group_id = await Rows(store).ready_group()
    assert await find_judging_failure(store, group_id) is None
    for said in ("first", "KeyError: 'x' (checks.py:3)"):
        claim = await claims.claim_one_for_judging(store, group_id, "j", 60)
        assert claim is not None
        await scores.mark_unscored(store, claim, "parts_missing", {"message": said}, 600)
    found = await find_judging_failure(store, group_id)
    assert found is not None
    assert (found.code, found.detail, found.tries) == ("parts_missing", "KeyError: 'x' (checks.py:3)", 2)
    assert found.next_in_s is not None


def test_it_is_told_in_a_sentence() -> None:
    told = JudgingFailure("judge_down", "no route", 1, 90.0).sentence()
    assert told == "could not be judged (judge_down), tried once, next in 01:30: no route"
    alone = JudgingFailure("too_few_usable", "no", 2, None).sentence()
    assert alone == "could not be judged (too_few_usable), tried 2 times, not tried again: use `hone score`: no"
    split = JudgingFailure("judges_disagree", "no", 2, None).sentence()
    assert split == "could not be judged (judges_disagree), tried 2 times, a person's choice scores it: no"
