"""One engine as the controller uses it: served models, loading and unloading adapters, logprobs, plain answers, texts.

Owns: these requests to vLLM, the meaning of its refusals, and the text of each token. Refuses: agents' requests
(`proxy.engine.client` sends those), and guessing the text of a token.

Tokenizers spell tokens in two ways: bytes as letters, or `▁` as a blank. The decoded pieces must join to the text, and
the text's tokens must be the ids; otherwise there are no token texts.
"""

from __future__ import annotations

import asyncio
import codecs
import hashlib
import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from proxy.engine.answers import EngineAnswer, EngineQuestion, read_answers, read_prompt_logprobs
from proxy.errors import AdapterError, AdapterNotVisible, ConfigError, EngineError, EngineUnreachable
from recorder.base.connection_failures import describe_failure

# An engine on a busy CPU answers late, and the first load of an adapter compiles kernels.
ANSWER_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 2.0
_TOKEN_ID = "token_id:"  # noqa: S105 - vLLM's form of a token id in place of its text
NO_FOLDER: Final = "No adapter found"  # in vLLM's answer to a load from a path that it does not see
_BLANK: Final = "\u2581"


@dataclass(frozen=True, slots=True)
class ServedModels:
    """The models that an engine lists: id → root, for the base's names and for adapters."""

    bases: Mapping[str, str]  # name → folder or hub id
    adapters: Mapping[str, str]  # engine name → folder
    max_model_len: int | None = None


class Replica:
    """One engine at `url` (without /v1). `close()` it."""

    def __init__(self, url: str, key: str | None) -> None:
        self.url = url
        headers = {"authorization": f"Bearer {key}"} if key else {}
        timeout = httpx.Timeout(ANSWER_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
        # connections are not kept: a restarting engine would leave dead ones, and requests here are rare
        limits = httpx.Limits(max_keepalive_connections=0)
        self._http = httpx.AsyncClient(
            base_url=url, headers=headers, timeout=timeout, limits=limits, trust_env=False, verify=tls_for(url)
        )

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def served(self) -> ServedModels:
        """Return the base's names and the loaded adapters. Raises EngineUnreachable, EngineError."""
        body = await self._json("GET", "/v1/models")
        bases: dict[str, str] = {}
        adapters: dict[str, str] = {}
        lengths: list[int] = []
        try:
            for card in body.get("data", []):
                (adapters if card.get("parent") else bases)[str(card["id"])] = str(card.get("root") or card["id"])
                if card.get("max_model_len"):
                    lengths.append(int(card["max_model_len"]))
        except (AttributeError, KeyError, TypeError, ValueError) as e:
            raise EngineError(f"{self.url}/v1/models answered without a list of models: is it vLLM?") from e
        return ServedModels(bases, adapters, min(lengths, default=None))

    async def load(self, name: str, path: str) -> None:
        """Load an adapter. It counts as loaded only if the engine then lists it with exactly this path.

        Raises EngineUnreachable (retry), AdapterNotVisible (it does not see the folder), AdapterError (the engine
        refuses this adapter).
        """
        answer = await self._send("POST", "/v1/load_lora_adapter", json={"lora_name": name, "lora_path": path})
        root = (await self.served()).adapters.get(name)
        if root == path:
            return
        if root is not None:
            raise AdapterError(
                "name_taken",
                f"the engine {self.url} serves {name} from another folder ({root}): it belongs to another data folder. "
                "Restart it.",
            )
        if answer.status_code == httpx.codes.NOT_FOUND and "error" not in answer.text:
            raise AdapterError(
                "no_runtime_lora",
                f"the engine {self.url} cannot load adapters while it runs: start it with --enable-lora and "
                "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True (`hone engine --print` shows the whole command).",
            )
        if answer.status_code == httpx.codes.NOT_FOUND and NO_FOLDER in answer.text:
            raise AdapterNotVisible(
                "load_refused",
                f"the engine {self.url} does not see {path}: its host needs the data folder under this path, or "
                "`hone adapters sync` where adapters.url is set.",
            )
        raise AdapterError(
            "load_refused",
            f"the engine {self.url} refused to load {path} ({answer.status_code}): {error_message(answer)}",
        )

    async def answer_to_load(self, name: str, path: str) -> tuple[int, str]:
        """Return status and message of the engine's answer to a load that cannot succeed (`proxy.doctor.engines`).

        Raises EngineUnreachable, EngineError.
        """
        answer = await self._send("POST", "/v1/load_lora_adapter", json={"lora_name": name, "lora_path": path})
        return answer.status_code, error_message(answer)

    async def unload(self, name: str) -> None:
        """Unload an adapter, if it is loaded. Raises EngineUnreachable, EngineError."""
        answer = await self._send("POST", "/v1/unload_lora_adapter", json={"lora_name": name})
        if answer.is_error and answer.status_code != httpx.codes.NOT_FOUND:
            raise EngineError(
                f"the engine {self.url} did not unload {name} ({answer.status_code}): {error_message(answer)}"
            )

    async def logprobs(self, model: str, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> list[float]:
        """Return the logprobs at temperature 1 of the named tokens as the next token after the prompt.

        Raises EngineUnreachable, EngineError.
        """
        body = await self._json(
            "POST",
            "/v1/completions",
            json={
                "model": model,
                "prompt": list(prompt_ids),
                "max_tokens": 1,
                "temperature": 1.0,
                "top_p": 1.0,
                "logprobs": 1,
                "logprob_token_ids": list(token_ids),
                "return_tokens_as_token_ids": True,
            },
        )
        try:
            top_logprobs = body["choices"][0]["logprobs"]["top_logprobs"][0]
            return [float(top_logprobs[f"{_TOKEN_ID}{token}"]) for token in token_ids]
        except (KeyError, IndexError, TypeError, ValueError) as e:
            raise EngineError(
                f"the engine {self.url} answered a probe without the requested logprobs: {str(body)[:300]}"
            ) from e

    async def answer(self, model: str, question: EngineQuestion) -> EngineAnswer:
        """Return one answer, sampled plainly. Raises EngineUnreachable, EngineError."""
        return (await self.answers(model, question, 1))[0]

    async def answers(self, model: str, question: EngineQuestion, number: int) -> list[EngineAnswer]:
        """Return a number of answers to one question; the engine computes its prompt once.

        Raises EngineUnreachable, EngineError.
        """
        body = await self._json("POST", "/v1/chat/completions", json=question.body(model, number))
        return read_answers(self.url, body, number)

    async def logprobs_of(self, model: str, token_ids: Sequence[int]) -> list[float]:
        """Return the logprobs at temperature 1 of every token after the first; NaN where the engine has none.

        Send one such request at a time: two crash an engine that serves adapters (vLLM 0.32 on a CPU). Raises
        EngineUnreachable, EngineError.
        """
        body = {"model": model, "prompt": list(token_ids), "max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}
        return read_prompt_logprobs(self.url, await self._json("POST", "/v1/completions", json=body), token_ids)

    async def text_of(self, model: str, token_ids: Sequence[int]) -> str:
        """Return the text of token ids, including special tokens. Raises EngineUnreachable, EngineError."""
        body = await self._json("POST", "/detokenize", json={"model": model, "tokens": list(token_ids)})
        text = body.get("prompt")
        if not isinstance(text, str):
            raise EngineError(f"the engine {self.url} answered /detokenize without a text: is it vLLM?")
        return text

    async def spelled(self, model: str, text: str) -> tuple[list[int], list[str]]:
        """Return a text's token ids, and the tokenizer's spelling of each. Raises EngineUnreachable, EngineError."""
        request = {"model": model, "prompt": text, "add_special_tokens": False, "return_token_strs": True}
        body = await self._json("POST", "/tokenize", json=request)
        ids, spelled = body.get("tokens"), body.get("token_strs")
        if not isinstance(ids, list) or not isinstance(spelled, list):
            raise EngineError(f"the engine {self.url} answered /tokenize without its tokens: is it vLLM?")
        return [int(one) for one in ids], [str(one) for one in spelled]

    async def fingerprint(self) -> str:
        """Return a fingerprint of a base that is served elsewhere: from its path, its length, the engine's version.

        It begins with `engine-`, because it does not prove the weights, as the fingerprint of a local base does. Behind
        a router without `/version` it begins with `engine-unversioned-`: it then does not change with an update of the
        engine.
        """
        served, version = await self.served(), await self._version()
        facts = {"roots": sorted(set(served.bases.values())), "len": served.max_model_len, "version": version}
        kind = "engine-" if version is not None else "engine-unversioned-"
        return kind + hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    async def _version(self) -> str | None:
        """The engine's version; None behind a router that only passes `/v1`. A failing engine raises EngineError."""
        answer = await self._http_answer("GET", "/version")
        if answer.is_server_error and answer.status_code != httpx.codes.NOT_IMPLEMENTED:
            raise EngineError(
                f"the engine {self.url} answered /version with {answer.status_code}: {error_message(answer)}"
            )
        try:
            body = answer.json() if answer.is_success else None
        except (ValueError, RecursionError):
            return None
        version = body.get("version") if isinstance(body, dict) else None
        return str(version) if version else None

    async def send(
        self, method: str, path: str, *, timeout_s: float = ANSWER_TIMEOUT_S, params: Mapping[str, Any] | None = None
    ) -> httpx.Response:
        """Return the answer of a route without a body, whatever its status. Raises EngineUnreachable, EngineError."""
        return await self._send(method, path, timeout_s=timeout_s, params=params)

    async def _json(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        answer = await self._send(method, path, **arguments)
        if answer.is_error:
            raise EngineError(
                f"the engine {self.url} answered {path} with {answer.status_code}: {error_message(answer)}"
            )
        try:
            body = answer.json()
        except (ValueError, RecursionError) as e:
            raise EngineError(f"{self.url}{path} answered with something that is not JSON: is it vLLM?") from e
        if not isinstance(body, dict):
            raise EngineError(f"{self.url}{path} answered with a {type(body).__name__}: is it vLLM?")
        return body

    async def _send(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        answer = await self._http_answer(method, path, **arguments)
        if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise EngineError(f"the engine {self.url} refuses Hone's key: set engine.api_key (HONE_ENGINE__API_KEY).")
        return answer

    async def _http_answer(
        self, method: str, path: str, *, timeout_s: float = ANSWER_TIMEOUT_S, **arguments: Any
    ) -> httpx.Response:
        limit = httpx.Timeout(timeout_s, connect=CONNECT_TIMEOUT_S)
        try:
            async with asyncio.timeout(timeout_s):  # httpx limits each read only, not the whole answer
                return await self._http.request(method, path, timeout=limit, **arguments)
        except TimeoutError as e:
            raise EngineUnreachable(f"the engine {self.url} did not end its answer in {timeout_s:.0f} s") from e
        except httpx.HTTPError as e:
            raise EngineUnreachable(f"the engine {self.url} does not answer: {describe_failure(e)}") from e


async def find_only_model(url: str, key: str | None) -> str:
    """Return the name of the only model that an engine serves (the first name, if it has several).

    Raises ConfigError if there are several models, or none, or the engine does not answer.
    """
    replica = Replica(url, key)
    try:
        bases = (await replica.served()).bases
    except EngineError as e:
        raise ConfigError(f"{e}. Start it, or name its model with --model.") from e
    finally:
        await replica.close()
    if len(set(bases.values())) != 1:
        there = ", ".join(bases) or "no model"
        raise ConfigError(f"no model is named, and the engine {url} serves {there}: name one with --model.")
    return next(iter(bases))


def same_weights(one: str, other: str) -> bool:
    """Whether two roots may be one model: equal names, one folder, or folders of one name on two machines."""
    return one == other or Path(one).absolute() == Path(other).absolute() or Path(one).name == Path(other).name


def differing_bases(one: ServedModels, other: ServedModels) -> tuple[str, str, str] | None:
    """Return a base that two engines serve from different weights: its name, and the root in each; None if there is
    none.
    """
    return next(
        (
            (name, one.bases[name], other.bases[name])
            for name in sorted(one.bases.keys() & other.bases.keys())
            if not same_weights(one.bases[name], other.bases[name])
        ),
        None,
    )


def tls_for(url: str) -> ssl.SSLContext:
    """Return a TLS context for httpx; certificates are only read for https, since that takes longer than an answer."""
    return ssl.create_default_context() if url.startswith("https://") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def error_message(answer: httpx.Response) -> str:
    """Return the message in an engine's error, shortened."""
    try:
        body = answer.json()
        message = body["error"]["message"] if "error" in body else body.get("message", answer.text)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        message = answer.text
    return " ".join(str(message).split())[:500]


async def token_texts(replica: Replica, model: str, ids: Sequence[int]) -> list[str] | None:
    """Return the text of each id; None if it cannot be determined. Raises EngineUnreachable, EngineError."""
    text = await replica.text_of(model, ids)
    tokens, spelled = await replica.spelled(model, text)
    return read_pieces(text, spelled) if tokens == list(ids) else None


def read_pieces(text: str, spelled: Sequence[str]) -> list[str] | None:
    """Return the pieces of a text from its tokens' spellings; None if they do not join to it."""
    for reading in (_letters_as_bytes, _blanks):
        pieces = reading(spelled)
        if "".join(pieces) == text:
            return pieces
    return None


def _letters_as_bytes(spelled: Sequence[str]) -> list[str]:
    """Decode byte-level BPE, in which each letter represents a byte. The last token of a character has its text."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pieces = []
    for token in spelled:
        if all(letter in _BYTES for letter in token):
            pieces.append(decoder.decode(bytes(_BYTES[letter] for letter in token)))
        else:
            pieces.append(decoder.decode(b"", final=True) + token)  # a special token is spelled as its text
            decoder.reset()
    if pieces:
        pieces[-1] += decoder.decode(b"", final=True)
    return pieces


def _blanks(spelled: Sequence[str]) -> list[str]:
    """Decode SentencePiece, in which a mark represents a blank."""
    return [token.replace(_BLANK, " ") for token in spelled]


def _letters() -> dict[str, int]:
    """Return GPT-2's table, letter → byte: printable bytes are their own letter, the others have letters from
    256 on.
    """
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + at): byte for at, byte in enumerate(others)}


_BYTES: Final = _letters()
