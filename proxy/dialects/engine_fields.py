"""The fields of vLLM's generating requests that every dialect handles: which are refused, bounded, added or distort
sampling.

Owns: which fields never reach the engine, which ones distort the sampled distribution, and how deeply a body may be
nested. Bodies are in vLLM's own fields. Refuses: messages and answers (the dialects), and anything about other engines.

orjson reads 1,024 levels of nesting and writes 254. Hone sends, records and shows a body inside a few further levels,
so it refuses a body that it could not write again.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from proxy.dialects.base import DialectRules
from proxy.errors import BadRequest, TooLarge
from recorder.base.json_limits import count_values
from recorder.messages.calls import SamplingParameters
from recorder.messages.long_texts import LONG_CHARS, dump_long_texts

AROUND: Final = 32  # further levels that may surround a body
SHALLOW: Final = 200  # number of brackets below which nothing is nested too deeply


def is_writable(parsed: object, data: bytes) -> bool:
    """Whether the value parsed from `data` can be encoded again inside further levels. Usually two counts decide."""
    if data.count(b"[") + data.count(b"{") <= SHALLOW:
        return True
    for _ in range(AROUND):
        parsed = [parsed]
    try:
        orjson.dumps(parsed)
    except orjson.JSONEncodeError:
        return False
    return True


Body = dict[str, Any]

# Field → why it is refused.
REFUSED: Final[Mapping[str, str]] = {
    "kv_transfer_params": "it replaces the prompt without the recorder seeing it",
    "ec_transfer_params": "it reaches the engine's caches",
    "truncate_prompt_tokens": "it cuts the prompt without the recorder seeing it",
    "truncation_side": "it cuts the prompt without the recorder seeing it",
    "cache_salt": "Hone owns the engine's prefix cache",
    "priority": "Hone owns the engine's queue",
    "vllm_xargs": "it reaches the engine's internals",
    "prompt_logprobs": "two such requests at once stop an engine that serves adapters",
    "prompt_logprob_token_ids": "two such requests at once stop an engine that serves adapters",
    "echo": "with logprobs it asks for prompt_logprobs, two of which at once stop an engine that serves adapters",
    "use_beam_search": "its tokens are not sampled, so they have no logprobs to record",
    "prompt_embeds": "the engine would load it as a serialized tensor",
}
# Fields in which SDKs and gateways nest others: a refused field is refused there too.
NESTED: Final = ("extra_body", "extra_args", "sampling_params", "nvext", "provider_options", "vllm")

# The engine's own bounds, or tighter ones where the engine would accept values that crash it.
MAX_CHOICES: Final = 128
MAX_TOP_LOGPROBS: Final = 20
MAX_TOKENS: Final = 2**31 - 1

NEUTRAL: Final[Mapping[str, float | int]] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
}
# Fields that, if set, distort the sampled distribution in a way that the logprobs do not show.
_BENDING: Final = frozenset(
    {
        "logit_bias",
        "allowed_token_ids",
        "bad_words",
        "logits_processors",
        "min_tokens",
        "structured_outputs",
        "guided_json",
        "guided_regex",
        "guided_choice",
        "guided_grammar",
        "guided_decoding",
        "thinking_token_budget",
        "watermarking",
    }
)
_PENALTIES: Final = frozenset({"presence_penalty", "frequency_penalty", "repetition_penalty"})
_NUMBERS: Final = _PENALTIES | {"temperature", "top_p", "min_p"}
INTEGERS: Final[Mapping[str, tuple[int, int]]] = {  # field → least, most
    "n": (1, MAX_CHOICES),
    "max_tokens": (0, MAX_TOKENS),
    "max_completion_tokens": (0, MAX_TOKENS),
    "min_tokens": (0, MAX_TOKENS),
    "top_logprobs": (0, MAX_TOP_LOGPROBS),
    "top_k": (-1, MAX_TOKENS),
    "seed": (-(2**63), 2**63 - 1),
}
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "model": (str,),
    "stream": (bool,),
    "stream_options": (dict,),
    "stop": (str, list),
    "tools": (list,),
    "tool_choice": (str, dict),
    "response_format": (dict,),
    "logprobs": (bool,),
}
_WHOLE: Final = frozenset({"max_output_tokens", "priority"})  # whole numbers that the formats check themselves
_SWITCHES: Final = frozenset({"store", "background", "parallel_tool_calls", "return_token_ids", "ignore_eos"})
_BOOLEANS: Final[Mapping[str, bool]] = {
    **dict.fromkeys(("true", "1", "1.0", "on", "yes", "t", "y"), True),
    **dict.fromkeys(("false", "0", "0.0", "off", "no", "f", "n"), False),
}
_MOST_DIGITS: Final = 40  # of a number in a text
_TYPE_NAMES: Final = {str: "a string", bool: "true or false", dict: "an object", list: "a list"}
_EMBEDDED_MEDIA: Final = ("image_embeds", "audio_embeds", "prompt_embeds", "video_embeds")


HALF_CHARACTER: Final = "half_character"  # what is reported of halves of a character in a request's text
# Limits of a body that is mended, so that the work stays below 50 ms; above them, half a character is refused.
_MENDED_BYTES: Final = 2**20
_MENDED_HALVES: Final = 10_000
_MENDED_VALUES: Final = 50_000


def load_body(body: bytes, rules: DialectRules, dropped: list[str] | None = None) -> Body:
    """Return a request's body as an object. Raises BadRequest, and TooLarge for more values or messages than allowed.

    Clients cut texts by UTF-16 units: half of an emoji is replaced by U+FFFD, and reported in `dropped`.
    """
    most = rules.max_values
    if most is not None and (values := count_values(body, most)) > most:
        raise TooLarge(
            f"the body has {values} values (texts, lists, objects); the limit of one request is {most}, and "
            f"{rules.max_messages} messages: send a smaller one, or raise `max_body_values` and `max_messages` in the "
            "[proxy] section of hone.toml."
        )
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as e:
        fields = _load_mended(body)
        if fields is None:
            raise BadRequest(f"the body is not JSON: {e}.", code="invalid_json") from e
        if dropped is not None:
            dropped.append(HALF_CHARACTER)
    if not isinstance(fields, dict):
        raise BadRequest('the body is JSON, but not an object: send {"model": …}.', code="invalid_type")
    if not is_writable(fields, body):
        raise too_deep_error()
    for name in ("messages", "input", "prompt"):
        given = fields.get(name)
        if isinstance(given, list) and not (given and isinstance(given[0], int)):  # token ids are no messages
            require_few_messages(len(given), name, rules)
    return fields


def require_few_messages(count: int, name: str, rules: DialectRules) -> None:
    """Raise TooLarge if the field `name` has more messages, items or prompts than one request may have."""
    if rules.max_messages is not None and count > rules.max_messages:
        raise TooLarge(
            f"the field {name!r} has {count} entries; the limit of one request is {rules.max_messages}: shorten the "
            "conversation, or raise `max_messages` in the [proxy] section of hone.toml.",
            param=name,
        )


def _load_mended(body: bytes) -> object | None:
    """The body without halves of characters; None if it is not JSON for another reason. The work is bounded."""
    halves = sum(body.count(mark) for mark in (rb"\ud", rb"\uD", b"\xed"))
    if not 0 < halves <= _MENDED_HALVES or len(body) > _MENDED_BYTES:
        return None
    if sum(body.count(mark) for mark in (b",", b"[", b"{")) > _MENDED_VALUES:
        return None
    try:  # unlike orjson, json reads halves
        text = json.dumps(json.loads(body.decode("utf-8", "surrogatepass")), ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    try:
        mended: object = orjson.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode())
    except orjson.JSONDecodeError:  # NaN, for example
        return None
    return mended


def dump_body(body: Body, size_bytes: int = 0) -> bytes:
    """Return an encoded body for the engine. Raises BadRequest for a body that is nested too deeply.

    `size_bytes`: of the client's body; a large one is encoded so that other threads run meanwhile.
    """
    try:
        return dump_long_texts(body) if size_bytes > LONG_CHARS else orjson.dumps(body)
    except orjson.JSONEncodeError as e:
        raise too_deep_error() from e


def too_deep_error() -> BadRequest:
    """Return the error for a body that is nested too deeply."""
    return BadRequest("the body is nested too deeply: the limit is some 200 levels of lists and objects.")


def read_values(body: Body, *, integer: Collection[str] = ()) -> None:
    """Replace numbers and booleans that the engine reads from other forms (64.0, "64", "0.7", "false", 1), in place.

    `integer`: fields that are whole numbers in this format only. A `priority` of 0, its default, is removed. Values
    that the engine does not read stay, and are refused by the checks.
    """
    for name, value in body.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            continue
        if name in INTEGERS or name in integer or name in _WHOLE:
            body[name] = _whole(value)
        elif name in _NUMBERS and isinstance(value, str):
            body[name] = _number(value)
        elif bool in _TYPES.get(name, ()) or name in _SWITCHES:
            body[name] = _BOOLEANS.get(str(value).strip().lower(), value)
    if body.get("priority") == 0 and body["priority"] is not False:
        del body["priority"]


def _whole(value: str | float) -> object:
    number = _number(value) if isinstance(value, str) else value
    if isinstance(value, str) and (found := value.strip()).lstrip("+-").isdecimal() and len(found) <= _MOST_DIGITS:
        return int(found)
    return int(number) if isinstance(number, float) and number.is_integer() and abs(number) < 2**53 else value


def _number(value: str) -> object:
    try:
        return float(value) if len(value) <= _MOST_DIGITS and "_" not in value else value
    except ValueError:
        return value


def check_fields(body: Body, own_types: Collection[str] = ()) -> None:
    """Raise BadRequest, naming the field, for invalid fields of a generating request.

    `own_types`: fields with another type in this format than in chat's, which the format checks itself.
    """
    if not isinstance(body.get("model"), str):
        raise BadRequest(
            "the field 'model' is missing or not a string: `GET /v1/models` lists the names.", param="model"
        )
    refuse_fields(body)
    check_types({name: value for name, value in body.items() if name not in own_types} if own_types else body)
    check_bounds(body)


def refuse_fields(body: Body) -> None:
    """Raise BadRequest, naming the field, for fields that must not reach the engine, also one level down."""
    for name, value in body.items():
        if name in REFUSED:
            _refuse_field(name, value, "")
        elif name in NESTED and isinstance(value, dict):
            for inner in value.keys() & REFUSED.keys():
                _refuse_field(inner, value[inner], f"{name}.")


def _refuse_field(name: str, value: object, where: str) -> None:
    if value is not None and value is not False:
        raise BadRequest(
            f"the field '{where}{name}' is not accepted: {REFUSED[name]}. Remove it.",
            param=where + name,
            code="unsupported_parameter",
        )


def check_types(body: Body) -> None:
    """Raise BadRequest for a field of a wrong type, if Hone reads it."""
    for name, value in body.items():
        allowed = _TYPES.get(name)
        if allowed is not None and value is not None and not isinstance(value, allowed):
            expected = " or ".join(_TYPE_NAMES[t] for t in allowed)
            raise BadRequest(f"the field {name!r} is {value!r:.60}: give {expected}.", param=name, code="invalid_type")
    for at, tool in enumerate(body.get("tools") or ()):
        if not isinstance(tool, dict):
            raise BadRequest(f"tools[{at}] is {tool!r:.60}: give an object.", param=f"tools[{at}]", code="invalid_type")


def check_bounds(body: Body) -> None:
    """Raise BadRequest for values that are not numbers or out of bounds."""
    for name, value in body.items():
        if value is None:
            continue
        if name in _NUMBERS:
            if not isinstance(value, int | float) or isinstance(value, bool):
                raise BadRequest(
                    f"the field {name!r} is {value!r:.60}: give a number.", param=name, code="invalid_type"
                )
        elif name in INTEGERS:
            least, most = INTEGERS[name]
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise BadRequest(
                    f"the field {name!r} is {value!r:.60}: give a whole number from {least} to {most}.",
                    param=name,
                    code="invalid_value",
                )


def add_neutral(body: Body, rules: DialectRules) -> None:
    """Write neutral values for missing sampling fields, so that no default of the model applies."""
    if rules.defaults == "neutral":
        for name, value in NEUTRAL.items():
            if body.get(name) is None:
                body[name] = value


def request_usage(body: Body) -> None:
    """Request usage at the end of a stream, whether or not the client did."""
    if body.get("stream"):
        body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}


def effective_sampling(body: Body, rules: DialectRules, forced: tuple[str, ...] = ()) -> SamplingParameters:
    """Return the effective parameters of a checked body. `forced`: further features that distort the distribution."""
    in_force = {**NEUTRAL, "n": 1} | {name: value for name, value in body.items() if value is not None}
    stop = in_force.get("stop", ())
    return SamplingParameters(
        temperature=float(in_force["temperature"]),
        top_p=float(in_force["top_p"]),
        top_k=in_force["top_k"] if in_force["top_k"] > 0 else None,
        min_p=float(in_force["min_p"]),
        seed=in_force.get("seed"),
        max_tokens=in_force.get("max_completion_tokens", in_force.get("max_tokens")),
        n=in_force["n"],
        stop=(stop,) if isinstance(stop, str) else tuple(map(str, stop)),
        distorting=(*_distorting(body, rules), *forced),
    )


def _distorting(body: Body, rules: DialectRules) -> list[str]:
    bends = [
        name
        for name, value in body.items()
        if value and (name in _BENDING or (name in _PENALTIES and value != NEUTRAL[name]))
    ]
    if rules.defaults == "engine" and any(body.get(name) is None for name in NEUTRAL):
        bends.append("engine_defaults")  # the model's defaults are unknown
    return bends


def file_part(part: Body, dropped: list[str]) -> Body:
    """Return a text part in place of a part that no model here can be shown: a file's text, or that it was omitted.

    `part`: OpenAI's, of chat (`file`) or responses (`input_file`). What is omitted is reported in `dropped`.
    """
    file = part.get("file") if isinstance(part.get("file"), dict) else part
    name, data = (file.get(key) if isinstance(file, dict) else None for key in ("filename", "file_data"))
    text = _text_of_data(data) if isinstance(data, str) else None
    if text is not None:
        return {"type": "text", "text": "\n".join([name, text] if isinstance(name, str) and name else [text])}
    dropped.append(part["type"][:60])
    about = f": {name[:200]}" if isinstance(name, str) and name else ""
    return {"type": "text", "text": f"[{part['type'].removeprefix('input_')[:60]} omitted{about}]"}


def _text_of_data(data: str) -> str | None:
    """The text in a data: URL of a text file; None for anything else."""
    head, _, encoded = data.partition(",")
    if not head.startswith("data:text/") or not head.endswith(";base64"):
        return None
    try:
        return base64.b64decode(encoded, validate=True).decode()
    except ValueError:
        return None


def check_media(content: object, rules: DialectRules, where: str) -> None:
    """Raise BadRequest for media in a message's content that the engine may not fetch or load."""
    if not isinstance(content, list):
        return
    for at, part in enumerate(content):
        if isinstance(part, dict):
            _check_part(part, rules, f"{where}[{at}]")
        elif isinstance(part, list):
            check_media(part, rules, f"{where}[{at}]")


def _check_part(part: Body, rules: DialectRules, where: str) -> None:
    for name, value in part.items():
        if name in _EMBEDDED_MEDIA or (value in _EMBEDDED_MEDIA and name == "type"):
            raise BadRequest(f"{where} has {name!r}: {REFUSED['prompt_embeds']}.", param=where)
        if name == "url" or name.endswith("_url"):
            url = value.get("url") if isinstance(value, dict) else value
            if url is not None:
                _check_url(url, rules, f"{where}.{name}")
        elif name in ("content", "parts", "source"):
            if isinstance(value, dict):
                _check_part(value, rules, f"{where}.{name}")
            else:
                check_media(value, rules, f"{where}.{name}")


def _check_url(url: object, rules: DialectRules, where: str) -> None:
    if isinstance(url, str):
        if url[:5].lower() == "data:":
            return
        if _host(url) in rules.media_hosts:
            return
    raise BadRequest(
        f"{where} is {url!r:.120}: the engine fetches media only from allowed hosts. Send a data: URL, or add the host "
        "to `allowed_media_hosts` in the [proxy] section of hone.toml.",
        param=where,
        code="media_not_allowed",
    )


def _host(url: str) -> str | None:
    """The host of a plain http(s) URL; None for any URL that two parsers could read differently."""
    if any(c in url for c in "\\@") or any(c <= " " or c == "\x7f" for c in url):
        return None
    try:
        parts = urlsplit(url)
        return parts.hostname if parts.scheme in ("http", "https") else None
    except ValueError:
        return None
