"""Commands that are copied: what they send is the request, whatever it says, and they have no key."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import types
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.recorded_requests.code_samples import KEY, MOST_CHARS, curl_command, is_short, python_program
from recorder.base.terminal import clean
from tests.proxy.dashboard.xss import CORPUS

BASE = "http://127.0.0.1:8700"
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
AWKWARD = st.sampled_from("'\"\\$`!\n\r\t\0\x7f\u202e\u2028\u200b\ud800\U000e0001 {}#;&|")
texts = st.text(AWKWARD | st.characters(), max_size=40)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
bodies = st.builds(
    lambda prompt, rest, stream: {"model": "helpdesk", "messages": prompt, "stream": stream, **rest},
    values,
    st.dictionaries(st.sampled_from(["temperature", "tools", "top_k", "x", "class", "a b"]), values, max_size=4),
    st.booleans(),
)


def arguments_of(command: str) -> list[str]:
    """What a shell makes of it. A line that goes on ends in a backslash, which Python's shlex does not know."""
    return shlex.split(command.replace(" \\\n", " "))


@given(st.sampled_from(PATHS), bodies, st.sampled_from([BASE, "http://a'b;`id`$(id)"]))
def test_curl_sends_exactly_the_body(path: str, body: dict[str, Any], base: str) -> None:
    command = curl_command(base, path, body)
    arguments = arguments_of(command)
    assert arguments[:2] == ["curl", base + path]
    assert arguments[-2] == "-d"
    assert json.loads(arguments[-1]) == body
    assert clean(command) == command  # a page shows it as it is, so it can be copied


@given(st.sampled_from(PATHS), bodies)
def test_python_is_compiled_and_sends_exactly_the_body(path: str, body: dict[str, Any]) -> None:
    program = python_program(BASE, path, body)
    compile(program, "copied.py", "exec")
    assert clean(program) == program
    [(made, sent)] = run(program)
    assert made["api_key"] == "the key"
    assert made["base_url"] == BASE + ("" if path == "/v1/messages" else "/v1")
    assert sent.pop("extra_body", {}) | sent == body


def run(program: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What the SDK's client is made with, and what its method is given."""
    calls: list[tuple[dict[str, Any], dict[str, Any]]] = []

    class Client:
        def __init__(self, **made: Any) -> None:
            self.made = made
            self.chat = self.completions = self.responses = self.messages = self

        def create(self, **sent: Any) -> list[str]:
            calls.append((self.made, sent))
            return []

    sdk: Any = types.SimpleNamespace(OpenAI=Client, Anthropic=Client)
    fake_os = types.SimpleNamespace(environ={KEY: "the key"})
    known = {name: sys.modules.get(name) for name in ("openai", "anthropic", "os")}
    sys.modules |= {"openai": sdk, "anthropic": sdk, "os": fake_os}  # type: ignore[dict-item]
    try:
        exec(program, {"print": lambda *_: None})
    finally:
        for name, module in known.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
    return calls


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_real_shell_makes_the_same_of_it(shell: str) -> None:
    hostile = ["'; touch /tmp/x; '", "$(id) `id` ${HOME} $HOME \\ \\\\ \\n", "a\nb\r\nc\t", "!!", *CORPUS[::15]]
    for text in hostile:
        body = {"model": "helpdesk", "messages": [{"role": "user", "content": text}]}
        script = 'curl() { printf "%s\\0" "$@"; }\n' + curl_command(BASE, PATHS[0], body)
        out = subprocess.run([shell, "-c", script], capture_output=True, check=True, env={KEY: "hone_k"}).stdout
        *_, flag, data = out.decode().split("\0")[:-1]
        assert (flag, json.loads(data)) == ("-d", body)
        assert b"Authorization: Bearer hone_k" in out


@pytest.mark.parametrize("path", PATHS)
def test_the_key_is_read_from_the_environment(path: str) -> None:
    body = {"model": "helpdesk", "messages": []}
    assert f"${KEY}" in curl_command(BASE, path, body)
    assert f'os.environ["{KEY}"]' in python_program(BASE, path, body)


def test_a_long_body_is_no_command() -> None:
    assert is_short({"messages": "x" * (MOST_CHARS - 100)})
    assert not is_short({"messages": "x" * MOST_CHARS})
