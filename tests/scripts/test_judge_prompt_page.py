"""The page of the judge's prompt: it has the texts that are sent, and a reply that is read as the page says."""

from __future__ import annotations

import json
import re

from judge.llm.reply_reader import read_reply
from judge.settings import RUBRIC
from scripts.pages import judge_prompt

PAGE = judge_prompt.page()


def unwrapped(text: str) -> str:
    return " ".join(text.split())


def test_the_page_has_each_prompt_as_it_is_sent() -> None:
    ruler, rubric, turns = judge_prompt._ruler(), judge_prompt._rubric(evidence=False), judge_prompt._turns()
    for message in (*ruler.messages, *rubric.messages, *turns.messages):
        assert unwrapped(message["content"]) in unwrapped(PAGE)
    assert unwrapped(RUBRIC) in unwrapped(PAGE)


def test_the_reply_of_the_page_is_one_that_is_read() -> None:
    (reply,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    ids = [one["id"] for one in json.loads(reply)["trajectories"]]
    by_run = {members[0]: id_ for id_, members in judge_prompt._ruler().ids.items()}
    read = read_reply(reply, ids)
    assert read[by_run["looked"]].score == 0.9
    assert read[by_run["guessed"]].score == 0.1
