"""Why a request failed is told in plain words, whatever library it was sent with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import aiohttp
import httpx
import httpx2
import openai
import pytest

from recorder.base.connection_failures import describe_failure, without_class_names
from recorder.errors import NotFound
from tests.failing_servers import require_plain, self_signed, server


async def by_httpx(url: str) -> None:
    async with httpx.AsyncClient(timeout=0.5) as http:
        (await http.post(url, json={})).json()


async def by_httpx2(url: str) -> None:
    async with httpx2.AsyncClient(timeout=0.5) as http:
        (await http.post(url, json={})).json()


async def by_aiohttp(url: str) -> None:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=0.5)) as http,
        http.post(url, json={}) as answer,
    ):
        await answer.json(content_type=None)


async def by_openai(url: str) -> None:
    async with openai.AsyncOpenAI(base_url=url, api_key="k", timeout=0.5, max_retries=0) as client:
        await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "Hi"}])


CLIENTS: Mapping[str, Callable[[str], Awaitable[None]]] = {
    "httpx": by_httpx, "httpx2": by_httpx2, "aiohttp": by_aiohttp, "openai": by_openai
}  # fmt: skip
JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 5\r\n\r\n"


async def failure(client: str, url: str) -> str:
    with pytest.raises(Exception) as raised:  # noqa: PT011 - every library has its own tree of errors
        await CLIENTS[client](url)
    return describe_failure(raised.value)


@pytest.mark.parametrize("client", CLIENTS)
async def test_each_library_tells_the_same(client: str) -> None:
    assert await failure(client, "http://127.0.0.1:9/v1") == "nothing listens at its address (connection refused)"
    assert await failure(client, "http://nowhere.invalid/v1") == "its host name cannot be resolved"
    async with server(b"", self_signed()) as url:
        assert await failure(client, url) == "its TLS certificate is not valid (self-signed certificate)"
    async with server(None) as url:
        assert await failure(client, url) == "it did not answer in time"
    async with server(b"") as url:
        assert await failure(client, url) == "it closed the connection before its answer was complete"
    async with server(JSON_HEAD + b"hello") as url:
        assert await failure(client, url) == "it sent something that is not JSON"
    async with server(JSON_HEAD + b"he") as url:
        assert await failure(client, url) == "it closed the connection before its answer was complete"
    async with server(b"SSH-2.0\r\n") as url:
        found = await failure(client, url)
        require_plain(found)
        assert "HTTP" in found or "closed" in found
    async with server(b"HTTP/1.1 200 OK\r\n") as url:
        assert (await failure(client, url.replace("http:", "https:"))).startswith("TLS failed")


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("litellm.InternalServerError: InternalServerError: OpenAIException - Connection error.", "Connection error"),
        ("litellm.APIConnectionError: OllamaException - hello", "hello"),
        ("GeminiException InternalServerError - hello", "hello"),
        ("Timeout Error: MistralException - litellm.Timeout: took 1 s", "took 1 s"),
        ("AnthropicException - hello. Handle with `litellm.InternalServerError`.", "hello"),
        ("litellm.APIConnectionError: no\nTraceback (most recent call last):\n  File x", "no"),
        (
            "Cannot connect to host h:9 ssl:<ssl.SSLContext object at 0x7f56957f6210> [x]",
            "Cannot connect to host h:9 [x]",
        ),
        ("BadRequestError: the field 'x' is unknown", "the field 'x' is unknown"),
        ("APIConnectionError", ""),
        ("the model raised a ValueError", "the model raised a ValueError"),
        ("Error in tool: no order 7", "Error in tool: no order 7"),
        ("Timeouts are 3 s", "Timeouts are 3 s"),
        ("", ""),
    ],
)
def test_only_the_librarys_own_words_are_removed(text: str, plain: str) -> None:
    assert without_class_names(text) == plain


def test_an_error_without_text_has_a_reason_all_the_same() -> None:
    class APIConnectionError(Exception):
        pass

    assert describe_failure(APIConnectionError()) == "no reason given"
    assert describe_failure(ExceptionGroup("of a task group", [APIConnectionError("APIConnectionError: no")])) == "no"
    assert describe_failure(NotFound("there is no group 'x'.")) == "there is no group 'x'"
