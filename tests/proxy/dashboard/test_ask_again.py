"""Asking a call again from its page, and the request as commands: without scripts, with hostile text, by who may."""

from __future__ import annotations

import json
import shlex
from typing import Any

import httpx
import pytest

from recorder.registry import keys
from recorder.registry.keys import Scope
from recorder.store.database import Project, Store
from tests.proxy.dashboard.markup import foreign
from tests.proxy.dashboard.reading import Form, Page, read
from tests.proxy.dashboard.walking import browser
from tests.proxy.dashboard.xss import CORPUS
from tests.proxy.fake_engine import FakeEngine, Script, words
from tests.proxy.running import ALIAS, PROJECT, Proxy, serving

pytestmark = pytest.mark.slow

TOOL = {"type": "function", "function": {"name": "find", "parameters": {"type": "object"}}}
MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief.\r\nAlways."},
    {"role": "user", "content": "Where is it?"},
    {"role": "assistant", "content": "Which one?"},
    {"role": "user", "content": [{"type": "text", "text": "4821"}]},
]


class Texts(Page):
    """A page, with the exact texts of its <pre> that have ids, and of its textareas as fields of their forms."""

    def __init__(self, markup: str) -> None:
        self.texts: dict[str, str] = {}
        self._field = self._pre = ""
        super().__init__(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, attrs)
        self._field = dict(attrs).get("name") or "" if tag == "textarea" else ""
        self._pre = dict(attrs).get("id") or "" if tag == "pre" else ""

    def handle_endtag(self, tag: str) -> None:
        super().handle_endtag(tag)
        self._field = self._pre = ""

    def handle_data(self, data: str) -> None:
        super().handle_data(data)
        if self._pre:
            self.texts[self._pre] = self.texts.get(self._pre, "") + data
        if self._field:
            fields = self.forms[-1].fields
            fields[self._field] += data

    def ask_form(self) -> Form:
        """The form as a browser sends it: a textarea's first line end is markup, and others are two characters."""
        [form] = [one for one in self.forms if one.action.endswith("/ask-again")]
        texts = {name: value.removeprefix("\n").replace("\n", "\r\n") for name, value in form.fields.items()}
        return Form(form.action, form.method, texts)


async def recorded(proxy: Proxy, messages: list[dict[str, Any]] | None = None, **more: Any) -> str:
    """The address of a call's page."""
    body = {"model": ALIAS, "messages": messages or MESSAGES, "tools": [TOOL], "temperature": 0.7} | more
    answer = await proxy.http.post("/t/one/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return f"/hone/trajectories/{answer.headers['x-hone-trajectory']}/calls/{answer.headers['x-hone-call']}"


async def ask(proxy: Proxy, call: str, **changes: str) -> httpx.Response:
    """What a browser sends whose form was changed so."""
    form = Texts((await proxy.http.get(f"{call}/ask-again")).text).ask_form()
    return await proxy.http.post(form.action, data=form.fields | {"model": f"{ALIAS}@0"} | changes)


async def test_the_answers_are_shown_beside_the_recorded_one(proxy: Proxy, engine: FakeEngine) -> None:
    call = await recorded(proxy)
    engine.next = [Script([words("It arrives on Friday"), words("It arrives on Monday")])]
    answer = await ask(proxy, call, n="2")
    assert answer.status_code == 303, answer.text
    sent = engine.requests[-1]
    assert (sent["n"], sent["temperature"], sent["tools"]) == (2, 0.7, [TOOL])
    assert sent["messages"] == engine.requests[0]["messages"]  # what nobody changed is as it was
    page = read(await proxy.http.get(answer.headers["location"]))
    assert "2 new answers beside the recorded one" in page.text
    assert "the same request" in page.text
    assert "It arrives on MondayFriday" in page.text
    assert "answer 2 stop, equal" in page.text
    assert "Asked before" in page.text


async def test_what_a_person_changes_is_sent_and_the_rest_is_as_recorded(proxy: Proxy, engine: FakeEngine) -> None:
    call = await recorded(proxy)
    changes = {"message-0": "", "message-1": "Where is\r\n4822?", "further": "Now!", "tools": "", "temperature": "0"}
    answer = await ask(proxy, call, **changes, n="1")
    sent = engine.requests[-1]
    assert [one["content"] for one in sent["messages"]] == [
        "Where is\n4822?", "Which one?", MESSAGES[3]["content"], "Now!",
    ]  # fmt: skip
    assert ("tools" in sent, sent["temperature"], sent["n"]) == (False, 0, 1)
    page = read(await proxy.http.get(answer.headers["location"]))
    assert "temperature 0.7 → 0, other messages, other tools" in page.text


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"tools": "{"}, "the tools are not JSON"),
        ({"tools": "{}"}, "not a JSON list"),
        ({"n": "9"}, "1 to 8"),
        ({"temperature": "hot"}, "is not a number"),
        ({"model": "nobody@1"}, "is unknown"),
        ({"message-1": "mine", "n": "x"}, "is not a number"),
    ],
)
async def test_a_failure_is_told_and_the_form_keeps_what_was_written(
    proxy: Proxy, changes: dict[str, str], why: str
) -> None:
    call = await recorded(proxy)
    page = Texts((await ask(proxy, call, **changes)).text)
    assert "There is no new answer" in page.text
    assert why in page.text
    kept = page.ask_form().fields
    assert {name: kept[name] for name in changes if name != "model"}.items() <= changes.items()


async def test_an_engine_that_fails_is_told_in_its_words(proxy: Proxy, engine: FakeEngine) -> None:
    call = await recorded(proxy)
    engine.next = [Script(status=500, error={"message": "out of memory", "type": "InternalServerError"})]
    answer = await ask(proxy, call)
    assert (answer.status_code, "out of memory" in answer.text) == (200, True)


async def test_hostile_text_is_text_in_the_form_the_answers_and_the_commands(proxy: Proxy, engine: FakeEngine) -> None:
    hostile = CORPUS[::9]
    messages = [{"role": "user", "content": text} for text in [*hostile, "a\0b", "\u202e"]]
    engine.default = Script([words(" ".join(hostile[:20]))])
    call = await recorded(proxy, messages)
    engine.default = Script([words(" ".join(hostile[10:30]))])
    answer = await ask(proxy, call, n="1")
    assert answer.status_code == 303, answer.text
    assert engine.requests[-1]["messages"] == engine.requests[0]["messages"]  # no form changed a letter
    for path in (call, f"{call}/ask-again", answer.headers["location"]):
        page = await proxy.http.get(path)
        assert page.status_code == 200
        assert not foreign(page.text), path
        assert len(page.content) < 150_000


async def test_a_call_is_copied_as_its_client_sent_it(proxy: Proxy) -> None:
    sent = {"model": ALIAS, "max_tokens": 20, "system": 'It\'s "brief".', "messages": [MESSAGES[1]]}
    answer = await proxy.http.post("/v1/messages", json=sent)
    run, call = answer.headers["x-hone-trajectory"], answer.headers["x-hone-call"]
    page = Texts((await proxy.http.get(f"/hone/trajectories/{run}/calls/{call}")).text)
    arguments = shlex.split(page.texts["as-curl"].replace(" \\\n", " "))
    assert arguments[1] == f"{proxy.url}/v1/messages"
    assert json.loads(arguments[-1]) == sent
    assert "x-api-key: $HONE_API_KEY" in page.texts["as-curl"]
    compile(page.texts["as-python"], "copied.py", "exec")
    again = await proxy.http.post(arguments[1], content=arguments[-1], headers={"content-type": "application/json"})
    assert again.status_code == 200


async def test_a_long_call_is_no_command_and_its_long_messages_stay(proxy: Proxy) -> None:
    call = await recorded(proxy, [{"role": "user", "content": "a word " * 12_000}, MESSAGES[1]])
    page = await proxy.http.get(call)
    assert "too long for a command" in page.text
    assert len(page.content) < 150_000
    form = await proxy.http.get(f"{call}/ask-again")
    fields = Texts(form.text).ask_form().fields
    assert ("message-0" in fields, fields["message-1"]) == (False, "Where is it?")
    assert len(form.content) < 150_000


async def test_asking_needs_infer_and_eval(store: Store, engine: FakeEngine) -> None:
    project = Project(store, PROJECT)
    _, admin = await keys.create_key(project, "admin", [Scope.ADMIN])
    async with serving(store, engine) as proxy:
        answer = await proxy.chat(headers={"authorization": f"Bearer {admin}"})
        path = f"/hone/trajectories/{answer.headers['x-hone-trajectory']}/calls/{answer.headers['x-hone-call']}"
        for scopes, status in (
            ([Scope.READ], 403),
            ([Scope.READ, Scope.EVAL], 403),
            ([Scope.READ, Scope.INFER], 403),
            ([Scope.READ, Scope.INFER, Scope.EVAL], 303),
        ):
            _, secret = await keys.create_key(project, "-".join(scopes), scopes)
            async with browser(proxy, secret) as http:
                page = read(await http.get(f"{path}/ask-again"))
                has_form = any(one.action.endswith("/ask-again") for one in page.forms)
                assert has_form is (status == 303)
                csrf = next(one.fields["csrf"] for one in page.forms if "csrf" in one.fields)
                told = await http.post(f"{path}/ask-again", data={"csrf": csrf, "model": ALIAS, "n": "1"})
                assert told.status_code == status, told.text
