"""A stronger model at a URL: the logprobs of given tokens, from vLLM's `prompt_logprobs`.

Owns: the requests, the bounds of their sizes and times, and reading the answers. Refuses: which tokens
(`trainer.teachers.distill`), and whether its tokenizer is ours (`trainer.teachers.tokenizer_check`).

vLLM scores prompts at temperature 1, without any sampling processor. One request is sent at a time: two at once end a
vLLM 0.32 that serves adapters.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

import httpx

from recorder.base.urls import mask_parameters
from trainer.errors import TrainerError
from trainer.settings import DistillSettings

_CONNECT_S: Final = 5.0
_BYTES: Final = 65_536  # of an answer, beside what each token takes
_BYTES_A_TOKEN: Final = 1024  # a measured one takes about 90; a token's text may be long
_IMPOSSIBLE: Final = -9999.0  # how vLLM writes the logprob of a token that its model gives no probability


class TeacherUnavailable(Exception):
    """The stronger model did not answer, or not as vLLM does. Says how."""


class TeacherRefusal(Exception):
    """The stronger model refused one request, as one that is too long. Says how."""


def read_key(settings: DistillSettings) -> str | None:
    """Return the server's key; None: it needs none. Raises `TrainerError` if the key's variable is not set."""
    if (name := settings.api_key_env) is None:
        return None
    if not (key := os.environ.get(name)):
        raise TrainerError(f"trainer.distill.api_key_env names the variable {name}, which is not set: set it.")
    return key


class RemoteModel:
    """One model at one server. Use as ``async with RemoteModel(settings) as model``."""

    def __init__(self, settings: DistillSettings, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """`transport`: in place of the network. Raises `TrainerError` if the key's variable is not set."""
        assert settings.url is not None  # the trainer's settings require both
        assert settings.model is not None
        self._model = settings.model
        self._shown = mask_parameters(settings.url)
        key = read_key(settings)
        headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
        timeout = httpx.Timeout(settings.timeout_s, connect=_CONNECT_S)
        self._client = httpx.AsyncClient(
            base_url=settings.url, headers=headers, timeout=timeout, trust_env=False, transport=transport
        )

    async def __aenter__(self) -> RemoteModel:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._client.aclose()

    @property
    def name(self) -> str:
        """The model and its address, for messages."""
        return f"{self._model} at {self._shown}"

    async def score(self, ids: Sequence[int]) -> list[float]:
        """Return the logprob of each id but the first after those before it, in nats, at temperature 1.

        Raises `TeacherUnavailable`, and `TeacherRefusal`.
        """
        asked = {"prompt": list(ids), "max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}
        body = await self._post("/v1/completions", asked, _BYTES + _BYTES_A_TOKEN * len(ids))
        try:
            rows = body["choices"][0]["prompt_logprobs"][1:]
            found = [float(row[str(id_)]["logprob"]) for row, id_ in zip(rows, ids[1:], strict=True)]
        except (KeyError, IndexError, TypeError, ValueError) as e:
            raise TeacherUnavailable(f"{self.name} gave no prompt_logprobs: is it vLLM?") from e
        if not all(math.isfinite(one) and _IMPOSSIBLE <= one <= 0.001 for one in found):
            raise TeacherUnavailable(f"{self.name} gave logprobs that are none")
        return found

    async def tokenize(self, text: str) -> list[int]:
        """Return the ids of a text by its tokenizer. Raises as `score`."""
        asked = {"prompt": text, "add_special_tokens": False}
        body = await self._post("/tokenize", asked, _BYTES + 16 * len(text.encode()))
        try:
            return [int(one) for one in body["tokens"]]
        except (KeyError, TypeError, ValueError) as e:
            raise TeacherUnavailable(f"{self.name} gave no tokens of a text: is it vLLM?") from e

    async def _post(self, path: str, asked: Mapping[str, Any], most_bytes: int) -> Any:
        """The answer to a request, if it has at most so many bytes."""
        content = bytearray()
        try:
            async with self._client.stream("POST", path, json={"model": self._model, **asked}) as answer:
                if answer.status_code in (httpx.codes.BAD_REQUEST, httpx.codes.REQUEST_ENTITY_TOO_LARGE):
                    raise TeacherRefusal(f"{self.name} refused a request ({answer.status_code})")
                if answer.status_code != httpx.codes.OK:
                    raise TeacherUnavailable(f"{self.name} answered with status {answer.status_code}")
                async for part in answer.aiter_bytes():
                    content += part
                    if len(content) > most_bytes:
                        raise TeacherUnavailable(f"{self.name} answered with more than {most_bytes} bytes")
        except (httpx.HTTPError, httpx.InvalidURL) as e:
            raise TeacherUnavailable(f"{self.name} does not answer ({type(e).__name__})") from e
        try:
            return json.loads(content)
        except (ValueError, RecursionError) as e:
            raise TeacherUnavailable(f"{self.name} answered with what is no JSON") from e
