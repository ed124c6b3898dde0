"""The mailbox: parts that share nothing, the same for the same seed, and tools that look things up in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import Client

from examples.inbox.mails import MOST_HITS, MailDatabase, make_mailbox
from examples.inbox.scenarios import Files, write
from examples.inbox.tools_server import call_tool, tools_app
from examples.inbox.wording import NO_SUCH_MAIL, NOTHING_FOUND, body
from tests.effort import scaled


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return write(tmp_path_factory.mktemp("inbox"), 7)


@pytest.fixture(scope="module")
def mails(files: Files) -> MailDatabase:
    return MailDatabase(files.database)


def test_there_are_more_than_500_mails_and_300_questions_to_learn_from() -> None:
    mailbox = make_mailbox(7)
    assert len(mailbox.mails) > 500
    assert len(mailbox.train) >= 300
    assert len(mailbox.test) >= 200


@pytest.mark.parametrize("seed", [7, 11, 23])
def test_parts_share_no_mail_and_no_thread(seed: int) -> None:
    mailbox = make_mailbox(seed)
    parts = [mailbox.train, mailbox.val, mailbox.test]
    ids = [{mail.mail_id for mail in part} for part in parts]
    threads = [{(mail.sender, mail.project) for mail in part} for part in parts]
    for sets in (ids, threads):
        assert len(set[object]().union(*sets)) == sum(map(len, sets))
    assert sum(map(len, ids)) == len(mailbox.mails)


def test_the_seed_decides_everything() -> None:
    assert make_mailbox(7) == make_mailbox(7)
    assert make_mailbox(7) != make_mailbox(8)


def test_every_question_has_one_right_mail_and_says_nothing_of_the_answer(files: Files, mails: MailDatabase) -> None:
    by_id = {f"mail-{mail.mail_id}": mail for mail in make_mailbox(7).mails}
    for path in (files.train, files.val, files.test):
        for line in path.read_text().splitlines():
            scenario = json.loads(line)
            mail = by_id[scenario["id"]]
            assert scenario["reference"] == {"kind": mail.kind, "value": mail.value}
            assert mail.value not in scenario["input"]["question"]
            assert [hit[0] for hit in mails.search(f"{mail.sender} {mail.project} {mail.kind}")] == [mail.mail_id]


def test_a_smaller_test_part_is_the_beginning_of_the_whole_one(files: Files, tmp_path: Path) -> None:
    short = write(tmp_path, 7, most_test=50).test.read_text().splitlines()
    assert [json.loads(line)["id"] for line in short] == [
        json.loads(line)["id"] for line in files.test.read_text().splitlines()[:50]
    ]


def test_fewer_words_find_more_mails_the_newest_first(mails: MailDatabase) -> None:
    mail = make_mailbox(7).test[0]
    found = mails.search(f"{mail.project} {mail.kind}")
    assert len(found) == MOST_HITS
    sent = {one.mail_id: one.sent for one in make_mailbox(7).mails}
    assert [sent[hit[0]] for hit in found] == sorted((sent[hit[0]] for hit in found), reverse=True)


@settings(max_examples=scaled(100), deadline=None)
@given(query=st.text(max_size=40))
def test_no_query_breaks_the_search(mails: MailDatabase, query: str) -> None:
    assert len(mails.search(query)) <= MOST_HITS


@pytest.mark.parametrize("query", ['"', "AND", 'a" OR "b', "NEAR(a b)", "subject : *", "Ann*", "", " ", "\0"])
def test_a_query_is_words_and_never_an_expression(mails: MailDatabase, query: str) -> None:
    assert call_tool(mails, "search", {"query": query}) == NOTHING_FOUND


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("read", {}), ("read", "4821"), ("read", None), ("search", {"q": "x"}), ("delete", {"mail_id": "1"})],
)
def test_a_call_that_no_tool_can_take_is_refused_in_words(mails: MailDatabase, name: str, arguments: object) -> None:
    assert "error" in json.loads(call_tool(mails, name, arguments))


def test_what_is_not_there_is_said(mails: MailDatabase) -> None:
    assert call_tool(mails, "read", {"mail_id": "0"}) == NO_SUCH_MAIL
    assert call_tool(mails, "search", {"query": "Nobody"}) == NOTHING_FOUND


def test_without_mails_nothing_is_served(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does not exist"):
        tools_app(tmp_path / "none.sqlite")


async def test_the_tools_say_over_mcp_what_they_say_without_and_that_they_only_read(
    inbox_url: str, inbox_files: Files
) -> None:
    mail = make_mailbox(7).val[0]
    async with Client(inbox_url) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        found = await client.call_tool("search", {"query": f"{mail.sender} {mail.project} {mail.kind}"})
        read = await client.call_tool("read", {"mail_id": mail.mail_id})
    assert {name: list(tool.input_schema["properties"]) for name, tool in tools.items()} == {
        "search": ["query"],
        "read": ["mail_id"],
    }
    assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools.values())
    said = [part.text for result in (found, read) for part in result.content if part.type == "text"]
    assert said[0] == f"{mail.mail_id} {mail.sender} {mail.project} {mail.kind}"
    assert said[1].endswith(body(mail))
