"""Hostile text is text: in every filter and macro of the templates, on the page of an error, and where a page shows
what its own address says. A real browser opens pages full of it in tests/browser/test_xss.py.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator

import pytest
from litestar.handlers import HTTPRouteHandler

from proxy.admission.pages import error_page
from proxy.dashboard.formatters import FILTERS
from proxy.dashboard.renderer import template_environment
from proxy.dashboard.routes import HANDLERS
from proxy.errors import UnknownObject
from recorder.store.database import Store
from tests.proxy.dashboard.markup import foreign
from tests.proxy.dashboard.walking import walked
from tests.proxy.dashboard.xss import CORPUS, DEEDS
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import Proxy, serving

TEXT_FILTERS = sorted(set(FILTERS) & {"visible", "short", "as_json"})
_SHOWN = "".join(f'<p title="{{{{ x|{name} }}}}" class="{{{{ x }}}}">{{{{ x|{name} }}}}</p>' for name in TEXT_FILTERS)
_MACROS = """{% import "common.html" as parts %}{{ parts.run("traj_1", x) }}{{ parts.run(x) }}{{ parts.group(x, x) }}
{{ parts.run(x, x, x) }}{{ parts.id(x) }}{{ parts.reason(x) }}
{{ parts.state(x, x) }}{{ parts.version(x) }}{{ parts.state(x) }}
{{ parts.hidden(x) }}{% call parts.nothing(x) %}{{ x }}{% endcall %}"""


@pytest.fixture
async def proxy(store: Store) -> AsyncIterator[Proxy]:
    async with FakeEngine() as engine, serving(store, engine) as running:
        yield running


def test_there_are_many_of_many_kinds() -> None:
    assert len(CORPUS) >= 200
    assert all(any(deed in text for text in CORPUS) for deed in DEEDS)


def test_what_is_looked_for_is_found() -> None:
    """So that the tests below can fail."""
    unescaped = [text for text in CORPUS if foreign(f'<p title="{text}">{text}</p>')]
    assert len(unescaped) > 150


@pytest.mark.parametrize("template", [_SHOWN, _MACROS], ids=["filters", "macros"])
def test_templates_make_text_of_it(template: str) -> None:
    made = template_environment().from_string(template)
    for text in CORPUS:
        assert not foreign(made.render(x=text)), text


def test_the_page_of_an_error_makes_text_of_it() -> None:
    for text in CORPUS:
        page = error_page(UnknownObject(text), "/hone/" + text).decode()
        assert not foreign(page), text


def asked_for(path: str) -> Iterator[str]:
    """The names of what an address may say after its question mark, of a handler."""
    for handler in HANDLERS:
        assert isinstance(handler, HTTPRouteHandler)
        if any(path.startswith("/hone" + own.partition("{")[0]) for own in handler.paths):
            yield from inspect.signature(handler.fn).parameters


@pytest.mark.slow
async def test_a_page_that_shows_what_its_address_says_makes_text_of_it(proxy: Proxy) -> None:
    texts = [CORPUS[at] for at in range(0, len(CORPUS), max(1, len(CORPUS) // 24))]
    for one in walked("GET"):
        names = {*asked_for(one.path), "onward", "q"} - {"context", "request"}
        for text in texts:
            async with proxy.http.stream(one.method, one.path, params=dict.fromkeys(names, text)) as answer:
                if not answer.headers["content-type"].startswith("text/html"):
                    continue
                page = (await answer.aread()).decode()
            assert answer.status_code < 500, (one, text)
            assert not foreign(page), (one, text)
