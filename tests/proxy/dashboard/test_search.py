"""The search box of every page: an id leads to its page, words to the list, and what is not found is said."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from recorder.search.indexer import index_calls
from recorder.store.database import Project
from tests.proxy.dashboard.markup import foreign
from tests.proxy.dashboard.reading import read
from tests.proxy.dashboard.xss import CORPUS
from tests.proxy.running import ALIAS, PROJECT, Proxy

pytestmark = pytest.mark.slow


async def where(proxy: Proxy, text: str) -> str | None:
    """Where the search leads; None: it stays, and says what was looked for."""
    answer = await proxy.http.get("/hone/search?" + urlencode({"q": text}))
    if answer.status_code == 302:
        return answer.headers["location"]
    assert answer.status_code == 200
    return None


async def test_any_id_leads_to_its_page(proxy: Proxy) -> None:
    headers = {"x-session-id": "thread-7"}
    answer = await proxy.chat(headers=headers)
    run, call = answer.headers["x-hone-trajectory"], answer.headers["x-hone-call"]
    named = await proxy.chat(path="/g/orders/t/seventeen")
    group = (await proxy.http.get(f"/hone/v1/trajectories/{named.headers['x-hone-trajectory']}")).json()["group_id"]
    for text, page in {
        run: f"trajectories/{run}",
        f"  {run} ": f"trajectories/{run}",
        call: f"trajectories/{run}/calls/{call}",
        f"x-hone-call: {call}": f"trajectories/{run}/calls/{call}",
        "thread-7": "sessions/x-session-id%3Athread-7",
        group: f"groups/{group}",
        "orders": f"groups/{group}",
        "orders/seventeen": f"trajectories/{named.headers['x-hone-trajectory']}",
        f"{ALIAS}@0": f"versions/{ALIAS}@0",
    }.items():
        location = await where(proxy, text)
        assert location == f"/hone/{page}", text
        assert (await proxy.http.get(location)).status_code == 200, location


async def test_words_lead_to_the_list_that_has_them(proxy: Proxy) -> None:
    await proxy.chat("Where is the depot?")
    while await index_calls(Project(proxy.store, PROJECT)):
        pass
    assert await where(proxy, "the depot") == "/hone/trajectories?search=the+depot"
    assert await where(proxy, "depot kettle") is None


async def test_what_is_not_found_is_said_with_how_it_was_looked_for(proxy: Proxy) -> None:
    page = read(await proxy.http.get("/hone/search?q=helpdesk@17"))
    assert "Nothing in this project matches helpdesk@17" in page.text
    assert "a session" in page.text
    assert "takes:" in read(await proxy.http.get("/hone/search")).text
    assert "no word that can be searched for" in read(await proxy.http.get("/hone/search?q=%3F%3F")).text


async def test_the_box_is_on_every_page_and_works_without_scripts(proxy: Proxy) -> None:
    for path in ("/hone/", "/hone/settings", "/hone/search"):
        [form] = [one for one in read(await proxy.http.get(path)).forms if one.action == "/hone/search"]
        assert (form.method, form.fields) == ("get", {"q": ""})


async def test_hostile_text_is_looked_for_and_shown_as_text(proxy: Proxy) -> None:
    for text in [*CORPUS[::7], "\0", "\u202e", "x" * 5_000, "../../etc", "a" * 300 + "@1", "%27"]:
        answer = await proxy.http.get("/hone/search?" + urlencode({"q": text}, errors="replace"))
        assert answer.status_code == 200, text
        assert not foreign(answer.text), text
