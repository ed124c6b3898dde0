"""What never reaches the engine, what bends the distribution, and which media it may fetch."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects import engine_fields
from proxy.dialects.base import DialectRules
from proxy.errors import BadRequest

RULES = DialectRules(media_hosts=frozenset({"images.example.com"}))


@pytest.mark.parametrize("name", sorted(engine_fields.REFUSED))
def test_refused_fields_are_named(name: str) -> None:
    with pytest.raises(BadRequest, match=name) as refused:
        engine_fields.refuse_fields({"model": "m", name: {"a": 1}})
    assert (refused.value.status, refused.value.param, refused.value.code) == (400, name, "unsupported_parameter")


@pytest.mark.parametrize("where", engine_fields.NESTED)
def test_refused_fields_are_found_where_others_nest_them(where: str) -> None:
    with pytest.raises(BadRequest, match="cache_salt") as refused:
        engine_fields.refuse_fields({"model": "m", where: {"cache_salt": "s"}})
    assert refused.value.param == f"{where}.cache_salt"


def test_a_refused_field_that_says_nothing_is_let_pass() -> None:
    engine_fields.refuse_fields({"prompt_logprobs": None, "echo": False, "extra_body": {"priority": None}, "user": "u"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 0),
        ("n", 129),
        ("n", 16_384),
        ("n", "2"),
        ("n", True),
        ("n", 1.5),
        ("max_tokens", -1),
        ("max_tokens", 10**30),
        ("max_completion_tokens", 2**31),
        ("top_logprobs", 21),
        ("top_logprobs", -1),
        ("seed", 2**63),
        ("top_k", -2),
        ("temperature", "warm"),
        ("temperature", True),
        ("top_p", []),
        ("presence_penalty", {}),
    ],
)
def test_numbers_that_the_engine_could_not_bear_are_refused(name: str, value: Any) -> None:
    with pytest.raises(BadRequest, match=f"'{name}'") as refused:
        engine_fields.check_bounds({name: value})
    assert refused.value.param == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", 3),
        ("stream", "yes"),
        ("stop", 5),
        ("stop", {"a": 1}),
        ("tools", {}),
        ("tool_choice", 1),
        ("response_format", "json"),
        ("logprobs", 2),
        ("stream_options", []),
    ],
)
def test_other_types_are_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(BadRequest, match=f"'{name}'") as refused:
        engine_fields.check_types({name: value})
    assert (refused.value.param, refused.value.code) == (name, "invalid_type")


def test_what_is_left_out_becomes_neutral() -> None:
    body = {"temperature": 0.7, "top_p": None}
    engine_fields.add_neutral(body, RULES)
    assert body == dict(engine_fields.NEUTRAL) | {"temperature": 0.7}


def test_the_engines_own_defaults_are_left_and_marked() -> None:
    rules, body = DialectRules("engine"), {"temperature": 0.7}
    engine_fields.add_neutral(body, rules)
    assert body == {"temperature": 0.7}
    assert engine_fields.effective_sampling(body, rules).distorting == ("engine_defaults",)
    assert engine_fields.effective_sampling(dict(engine_fields.NEUTRAL), rules).distorting == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("presence_penalty", 0.1),
        ("frequency_penalty", -0.5),
        ("repetition_penalty", 1.1),
        ("logit_bias", {"5": 1}),
        ("allowed_token_ids", [1]),
        ("bad_words", ["no"]),
        ("min_tokens", 3),
        ("structured_outputs", {"regex": "a"}),
        ("guided_json", {}),
        ("thinking_token_budget", 10),
    ],
)
def test_what_bends_the_distribution_is_named(field: str, value: Any) -> None:
    bent = engine_fields.effective_sampling({field: value}, RULES).distorting
    assert bent == ((field,) if value else ())


def test_neutral_values_bend_nothing() -> None:
    neutral = dict(engine_fields.NEUTRAL) | {"top_k": -1, "min_tokens": 0, "logit_bias": {}, "stop": ["\n", "END"]}
    sampling = engine_fields.effective_sampling(neutral, RULES)
    assert (sampling.distorting, sampling.top_k, sampling.stop) == ((), None, ("\n", "END"))


def test_the_parameters_in_force_are_read() -> None:
    body = {"temperature": 0, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 7, "max_tokens": 5, "n": 3, "stop": "x"}
    sampling = engine_fields.effective_sampling(body, RULES)
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (0.0, 0.9, 5, 0.1)
    assert (sampling.seed, sampling.max_tokens, sampling.n, sampling.stop) == (7, 5, 3, ("x",))


def image(url: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": "what is it?"}, {"type": "image_url", "image_url": url}]


@pytest.mark.parametrize(
    "url",
    [
        "data:image/png;base64,AAAA",
        "https://images.example.com/a.png",
        "http://IMAGES.example.com:8080/a.png?x=1",
        None,
    ],
)
def test_media_in_the_request_and_from_allowed_hosts_pass(url: str | None) -> None:
    engine_fields.check_media(image({"url": url}), RULES, "messages[0].content")
    engine_fields.check_media(image(url), RULES, "messages[0].content")


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data",
        "https://example.com/a.png",
        "https://images.example.com.evil.net/a.png",
        "https://images.example.com@evil.net/a.png",
        "https://evil.net\\@images.example.com/a.png",
        "https://evil.net#@images.example.com/",
        "file:///etc/passwd",
        "ftp://images.example.com/a",
        "//images.example.com/a.png",
        "https://images.example.com\t.evil.net/",
        "http://[::1",
        5,
        "",
    ],
)
def test_other_media_are_refused(url: Any) -> None:
    for content in (image({"url": url}), image(url), [{"type": "video_url", "video_url": {"url": url}}]):
        with pytest.raises(BadRequest, match="allowed") as refused:
            engine_fields.check_media(content, RULES, "messages[0].content")
        assert refused.value.code == "media_not_allowed"


def test_media_in_other_formats_bodies_are_found() -> None:
    source = {"type": "image", "source": {"type": "url", "url": "https://evil.net/a.png"}}
    for content in ([source], [{"role": "user", "content": [source]}]):
        with pytest.raises(BadRequest, match="allowed"):
            engine_fields.check_media(content, RULES, "input")


def test_serialized_tensors_are_refused() -> None:
    for part in ({"type": "image_embeds", "image_embeds": "AAAA"}, {"type": "audio_embeds"}):
        with pytest.raises(BadRequest, match="serialized tensor"):
            engine_fields.check_media([part], RULES, "messages[0].content")


@pytest.mark.parametrize("body", [b"", b"{", b"nope", b'{"a": NaN}', b"\xff\xfe{}"])
def test_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest, match="not JSON") as refused:
        engine_fields.load_body(body, DialectRules())
    assert refused.value.code == "invalid_json"


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"3", b"null"])
def test_json_that_is_no_object_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest, match="not an object"):
        engine_fields.load_body(body, DialectRules())
