"""The sections of hone.toml that the proxy owns: `[proxy]`, `[[proxy.models]]`, `[engine]` and `[aliases.<name>]`.

Owns: their fields, defaults and units. Refuses: reading files or the environment (`proxy.settings.loader` does), and
importing anything but pydantic.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, IPvAnyNetwork, SecretStr, field_validator, model_validator

from proxy.settings.gpus import VISIBLE_GPUS, check_gpus
from recorder.base.function_paths import is_function_path

MODEL_NAME = r"^[A-Za-z0-9._:~/-]{1,128}$"  # as aliases are named: @ would mean a version
# What `params` of a provider's model must not replace.
OWN_PARAMS = frozenset(
    {"model", "messages", "stream", "stream_options", "tools", "api_key", "api_base", "base_url", "timeout"}
)


MIN_TEMPERATURE = 0.1  # of a call that is trained on, as `recorder.messages.trainability` has it
_NEUTRAL = {
    "top_p": 1,
    "top_k": 0,
    "min_p": 0,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "repetition_penalty": 1,
}


class ModelSettings(BaseModel):
    """A model of another provider, reached through LiteLLM: a table of `[[proxy.models]]`. Recorded as text."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())

    name: str = Field(pattern=MODEL_NAME)
    """The name that agents ask for."""
    model: str = Field(min_length=1)
    """LiteLLM's name of the model: `openai/gpt-5`, `anthropic/claude-…`, `hosted_vllm/…`."""
    api_base: str | None = None
    """URL of the API, if it is not the provider's own. No key from the environment is ever sent to it."""
    api_key: SecretStr | None = None
    """Key for the provider. Default: `api_key_env`, else the provider's own variable, unless `api_base` is set."""
    api_key_env: str | None = None
    """The environment variable that holds the key, so that no file has to."""
    timeout_s: float = Field(600.0, gt=0)
    """How long the provider may send nothing before its answer is given up."""
    drop_params: bool = False
    """Drop parameters that the provider does not accept, instead of refusing the request."""
    params: dict[str, Any] = {}
    """Further arguments for LiteLLM (`reasoning_effort`, `aws_region_name` …). The client's values take precedence."""

    @model_validator(mode="after")
    def _one_key(self) -> ModelSettings:
        if self.api_key is not None and self.api_key_env is not None:
            raise ValueError("give `api_key` or `api_key_env`, not both")
        if taken := sorted(OWN_PARAMS & self.params.keys()):
            raise ValueError(
                f"`params` cannot hold {taken[0]!r}: it has a setting of its own, or comes from the client"
            )
        return self


class ProxySettings(BaseModel):
    """How the HTTP server listens, what it accepts, and how long it waits."""

    model_config = ConfigDict(extra="forbid")

    host: str = "127.0.0.1"
    """Address to listen on. Any other than loopback needs at least one key (`hone keys create`)."""
    port: int = Field(8700, ge=0, le=65535)
    """Port to listen on. 0 takes a free one."""
    url: str | None = None
    """Address at which judges and learners in other containers or on other machines reach this proxy, without `/v1`:
    `http://proxy:8700`. Default: `host` and `port`."""
    workers: int = Field(1, ge=1, le=256)
    """How many processes serve on the port, each on a core of its own. More than one needs Linux."""
    pages: bool = True
    """Whether the dashboard is served at `/hone`. `/hone/v1` serves the same data as JSON in either case."""
    pages_timeout_s: float = Field(5.0, gt=0)
    """How long a page may read from the store. A slower page is ended with an error. Other requests do not wait for it.
    """
    defaults: Literal["neutral", "engine"] = "neutral"
    """The value of a sampling field that the client omits. `neutral`: temperature 1, top_p 1, no top_k. `engine`: the
    engine's own defaults."""
    token_continuity: Literal["off", "on"] = "off"  # noqa: S105 - no password
    """Whether a call that continues a recorded one is sent with exactly the recorded tokens of its history, instead of
    what the chat template renders now. `on`: a trajectory is one row, and the engine's prefix cache always hits. What a
    template would drop or rewrite, above all a thinking model's earlier thinking, stays in the context as it was
    sampled. Where equal meaning is not certain, the call is sent unchanged and its record has the reason."""
    strict_tools: Literal["engine", "plain"] = "engine"
    """What `strict: true` of a tool becomes. `engine`: the engine's grammar enforces the tool's schema, and the call is
    not trained on, because its logprobs are not those of free sampling. `plain`: the tool is offered without `strict`,
    so that agents can be trained on even if their SDK marks every tool strict (OpenAI's Agents SDK)."""
    forced_tools: Literal["engine", "plain"] = "engine"
    """What a tool choice that requires a tool (`required`, or one by its name) becomes. `engine`: the grammar forces a
    tool call, and the call is not trained on. `plain`: the engine gets the tools with tool choice `auto`, so that
    agents which always require one (smolagents) can be trained on; the model may then answer in text. The call and the
    header `x-hone-plainly` report it."""
    unrecorded: bool = False
    """Whether requests to a generating route that Hone does not record yet are passed through instead of answered with
    501."""
    max_body_bytes: int = Field(32 * 1024 * 1024, gt=0)
    """Largest request body that is accepted."""
    max_head_bytes: int = Field(64 * 1024, ge=1024, le=16 * 1024 * 1024)
    """Largest head of a request that is accepted: its URL and its headers."""
    head_timeout_s: float = Field(20.0, gt=0)
    """Time limit for the head of a request, from its first byte on."""
    body_timeout_s: float = Field(30.0, gt=0)
    """How long a request's body may stand still."""
    max_pipelined: int = Field(16, ge=1, le=1024)
    """How many requests of one connection may wait behind the one that is answered. Then nothing more is read."""
    max_connections: int | None = Field(None, ge=1)
    """How many connections a process has at most. At the limit, a new one takes the place of an idle one. Default: the
    limit of open files, which is raised as far as the system allows, less 256."""
    cors_origins: list[str] = []
    """Origins whose pages may call `/v1`, `/t`, `/g` and `/hone/v1` from a browser, for example
    `https://app.example.com`. A page sends a key as other clients do, and never a cookie. `*`: any page, on a proxy
    with keys only."""
    trusted_proxies: list[IPvAnyNetwork] = []
    """Addresses or networks of the load balancers in front of this proxy. From these alone `X-Forwarded-For` is read,
    for the limit of failed sign-ins and for logs."""
    max_body_values: int = Field(250_000, gt=0)
    """Most texts, lists, objects and other values in the JSON of one request to a model; ten numbers count as one. The
    time to read a body depends on them, and on its size."""
    max_messages: int = Field(20_000, gt=0)
    """Most messages, input items or prompts in one request."""
    allowed_media_hosts: list[str] = []
    """Hosts from which the engine may fetch images and other media that a message references by URL."""
    connect_timeout_s: float = Field(5.0, gt=0)
    """Time limit for connecting to the engine."""
    first_byte_timeout_s: float = Field(600.0, gt=0)
    """Time limit for the first byte of the engine's answer."""
    key_groups: Literal["own", "project"] = "own"
    """Scope of the group names in calls (`/g/<group>/…`, `x-hone-group`), where there are keys. `own`: each key has its
    own groups, and the same name under another key is another group. `project`: all keys share groups."""
    mcp_prefix: Literal["server", "none"] = "server"
    """Names of tools and prompts behind `/mcp`. `server`: `<server>__<tool>`. `none`: the server's own names; for one
    server only."""
    stop_timeout_s: float = Field(30.0, ge=0)
    """How long running requests may continue after the proxy received the signal to stop."""
    pin_max_age_versions: int = Field(8, ge=1)
    """A trajectory pinned to a version this many steps behind the live one moves to the live one."""
    models: list[ModelSettings] = []
    """Models of other providers, recorded as text. Their trajectories are judged and exported, never trained on."""

    @field_validator("url")
    @classmethod
    def _bare_url(cls, url: str | None) -> str | None:
        if url is not None and not re.fullmatch(r"https?://[^\s/@?#]+(?:/v1)?/?", url):
            raise ValueError("it is not an address: write it as http://host:port")
        return url and url.rstrip("/").removesuffix("/v1")

    @field_validator("cors_origins")
    @classmethod
    def _exact_origins(cls, origins: list[str]) -> list[str]:
        for origin in origins:
            if origin != "*" and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^\s/@?#*]+", origin):
                raise ValueError(f"{origin[:80]!r} is no origin: write scheme://host or scheme://host:port, or *")
        return [origin.lower() for origin in origins]

    @field_validator("models")
    @classmethod
    def _distinct(cls, models: list[ModelSettings]) -> list[ModelSettings]:
        names = [model.name for model in models]
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two models are called {doubled[0]!r}: give each a name of its own")
        return models


Share = Literal["split", "cache", "sleep"]


class EngineSettings(BaseModel):
    """Which vLLM serves the base model: one that Hone starts, or engines that are running already."""

    model_config = ConfigDict(extra="forbid")

    base: str | None = None
    """The base model: a folder or a Hugging Face id. Hone starts an engine for it unless `urls` is set."""
    name: str | None = None
    """The name under which the engine serves the base model. Default: the last part of `base`."""
    urls: list[str] = []
    """Engines that are running already, without `/v1`, for example `http://10.0.0.5:8000`. Hone then starts none."""
    host: str = "127.0.0.1"
    """Address that the started engine listens on."""
    port: int = Field(8701, ge=1, le=65535)
    """Port that the started engine listens on."""
    api_key: SecretStr | None = None
    """Key for the engine's API. Default for a started engine: a random one, stored in the data folder."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """What the engine runs on. `auto`: a GPU if there is one."""
    dtype: str = "auto"
    """Precision of the weights. `auto`: float32 on a CPU, bfloat16 on a GPU."""
    max_model_len: int | None = Field(None, gt=0)
    """Most tokens of prompt and answer together, at most the model's own context, which is the default."""
    kv_cache_bytes: int | None = Field(None, gt=0)
    """Memory for the KV cache. Default: 128 MiB on a CPU; on a GPU, what vLLM finds free."""
    gpu_memory_utilization: float | None = Field(None, gt=0, le=1)
    """Share of the GPU's memory for weights and KV cache, for an engine that Hone starts. A trainer on the same GPU
    gets the rest. Default: vLLM's own, 0.92."""
    gpus: list[int] = Field([], max_length=64)
    """The GPUs of an engine that Hone starts, by number. Several compute one model together (tensor parallelism).
    Default: what vLLM sees."""
    share: Share = "split"
    """How engine and trainer use one GPU. `split`: each keeps its part of the memory all the time. `cache`: the engine
    gives up its KV cache while the trainer computes. `sleep`: it also moves its weights to host memory. With `cache`
    and `sleep`, calls wait while the trainer computes, and continue afterwards; the engine must be on this machine."""
    max_pause_share: float = Field(0.05, gt=0, le=1)
    """With `share` other than `split`: the largest share of an hour for which `hone learn` may pause the engine. A
    longer pause is followed by a longer wait. Campaigns pause the engine whenever they train."""
    max_loras: int = Field(4, ge=2)
    """Versions in service at once: the live one, those that trajectories are pinned to, and one being loaded."""
    max_lora_rank: Literal[1, 8, 16, 32, 64, 128, 256, 320, 512] = 32
    """Highest LoRA rank that the engine accepts."""
    tool_call_parser: str | None = "auto"
    """vLLM's parser for tool calls (hermes, qwen3_xml, llama3_json …). `auto`: the one that reads what the base's chat
    template writes; none where Hone knows no such parser. Empty: tool calls are not parsed."""
    reasoning_parser: str | None = "auto"
    """vLLM's parser for reasoning text (qwen3, deepseek_r1 …). `auto`: by the base's family and chat template; none
    where Hone knows no such parser. Empty: thinking is not parsed."""
    chat_template: Path | None = None
    """A chat template file instead of the model's own."""
    args: list[str] = []
    """Further arguments for vLLM. They come last and take precedence."""
    env: dict[str, str] = {}
    """Further environment variables for vLLM."""
    python: Path | None = None
    """The Python that has vLLM installed. Default: the one that runs Hone."""
    start_timeout_s: float = Field(300.0, gt=0)
    """Time limit until the engine answers its health check."""
    stop_timeout_s: float = Field(10.0, ge=0)
    """How long the engine may take to stop before it is killed."""
    health_interval_s: float = Field(2.0, gt=0)
    """Seconds between health checks of a running engine."""
    health_timeout_s: float = Field(60.0, gt=0)
    """A running engine that leaves its health check unanswered for this long is restarted."""
    adapter_group: str | None = None
    """Group, by name or number, that may read the adapters, for an engine that runs as another user. Default: none."""

    @field_validator("max_lora_rank", mode="before")
    @classmethod
    def _as_number(cls, value: object) -> object:
        # from the environment it comes as text, which a list of allowed numbers does not know
        return int(value) if isinstance(value, str) and value.isdecimal() else value

    @field_validator("urls")
    @classmethod
    def _bare_urls(cls, urls: list[str]) -> list[str]:
        for url in urls:
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https"):
                raise ValueError("one is not a URL: write it as http://host:port")
            if "@" in parts.netloc or parts.query or parts.fragment:
                raise ValueError(
                    "one holds more than an address, which status, logs and errors would show: write it as "
                    "http://host:port, and give the engine's key as `api_key`"
                )
        return [url.rstrip("/").removesuffix("/v1") for url in urls]

    @field_validator("tool_call_parser", "reasoning_parser", "name", mode="before")
    @classmethod
    def _empty_is_none(cls, value: object) -> object:
        return None if value == "" else value

    @field_validator("gpus")
    @classmethod
    def _distinct_gpus(cls, gpus: list[int]) -> list[int]:
        return check_gpus(gpus)

    @model_validator(mode="after")
    def _placed(self) -> EngineSettings:
        if self.gpus and VISIBLE_GPUS in self.env:
            raise ValueError(f"engine.gpus and {VISIBLE_GPUS} in [engine.env] both name the engine's GPUs: remove one")
        if self.gpus and self.urls:
            raise ValueError("engine.gpus is for an engine that Hone starts, and engine.urls names running ones")
        if self.share != "split":
            self._require_local()
        return self

    def _require_local(self) -> None:
        """Refuse engines on other machines: an API key does not guard vLLM's routes for sleeping."""
        for host in [urlsplit(url).hostname or "" for url in self.urls] or [self.host, *_hosts_in(self.args)]:
            if not _is_loopback(host):
                raise ValueError(
                    f'engine.share = "{self.share}" is for an engine on this machine that listens on loopback, and '
                    f"{host!r} is another address: whoever reaches it could put the engine to sleep, because its API "
                    'key does not guard that. Let it listen on 127.0.0.1, or set engine.share = "split"'
                )


def _hosts_in(args: list[str]) -> list[str]:
    """The addresses that vLLM's arguments name to listen on."""
    parted = [(one.partition("="), after) for one, after in pairwise([*args, ""])]
    return [value if equals else after for (name, equals, value), after in parted if name == "--host"]


def _is_loopback(host: str) -> bool:
    """Whether a host is this machine, as far as its text says so. A name other than localhost may resolve to any."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def pause_limit(engine: EngineSettings) -> float | None:
    """The share of an hour for which learning may pause the engine; None if the engine is not paused."""
    return None if engine.share == "split" else engine.max_pause_share


def base_name(engine: EngineSettings) -> str | None:
    """The name under which the engine serves the base model, or None where no setting gives it."""
    if engine.name or engine.base is None:
        return engine.name
    return Path(engine.base).name


class SamplingOverride(BaseModel):
    """Sampling values for the engine, instead of a client's. Values that are not set stay the client's."""

    model_config = ConfigDict(extra="forbid")

    temperature: float | None = Field(None, le=2)
    """At least 0.1: a call below it is not trained on."""
    top_p: float | None = None
    """Only 1."""
    top_k: int | None = None
    """Only 0."""
    min_p: float | None = None
    """Only 0."""
    presence_penalty: float | None = None
    """Only 0."""
    frequency_penalty: float | None = None
    """Only 0."""
    repetition_penalty: float | None = None
    """Only 1."""

    def values(self) -> dict[str, float]:
        """The values that are set, by field name."""
        return self.model_dump(exclude_none=True)

    @model_validator(mode="after")
    def _trainable(self) -> SamplingOverride:
        if self.temperature is not None and self.temperature < MIN_TEMPERATURE:
            raise ValueError(
                f"temperature {self.temperature:g} is below {MIN_TEMPERATURE:g}: sampling is then nearly greedy, its "
                "logprobs do not describe the choice that was made, and no such call is trained on. Give 0.1 or more"
            )
        for name, neutral in _NEUTRAL.items():
            value = getattr(self, name)
            if value is not None and value != neutral:
                raise ValueError(
                    f"{name} {value:g} changes the sampled distribution, but not the logprobs, and no such call is "
                    f"trained on. Give {neutral}, or omit it"
                )
        return self


class SamplingSettings(BaseModel):
    """How calls of an alias are sampled: `[aliases.<name>.sampling]`."""

    model_config = ConfigDict(extra="forbid")

    override: SamplingOverride = SamplingOverride()
    """Sampling values for calls with purpose `train`, instead of the client's: with `{temperature = 0.7, top_p = 1}`,
    an agent that samples greedily can be trained on. The record keeps the client's values; the call and the header
    `x-hone-sampling` report what was sent."""


Promote = Literal["auto", "gate", "canary", "manual"]
Age = Literal["day", "week"]


class GateSettings(BaseModel):
    """What a new version of an alias must pass before users get it: `[aliases.<name>.gate]`."""

    model_config = ConfigDict(extra="forbid")

    timeout_s: float = Field(600.0, gt=0)
    """How long the gate waits for a version's answers. Later answers do not count, and the version's row reports that
    they are missing (`hone versions --moves`)."""
    kl_max: float | None = Field(None, gt=0)
    """Largest KL divergence of a version's answers from the live version and from the base, in nats a token. Default:
    not checked. The check needs logprobs of prompts, and vLLM 0.32 crashes on those while an adapter is loaded and
    other requests run: set it only for an engine without this fault."""
    length_times: float = Field(2.0, gt=1)
    """Largest factor between the lengths of a version's answers and the live version's, in either direction."""
    max_share: float = Field(1.0, gt=0, le=1)
    """Largest share of a campaign's sampled tokens, of its attempts and its gates together, that its gates may take.
    Past it, a gate asks fewer first turns, and its decision says how many. 1: no bound. Versions of traffic are not
    bounded."""
    win_at_least: float = Field(0.4, gt=0, lt=1)
    """The share of pairs that a version should win before a judge. A pair is its answer and the live version's to the
    same recorded first turns. The version is rejected only if its share is significantly lower. Where no judge runs,
    figures of its answers decide."""
    max_samples: int = Field(64, ge=1)
    """Most pairs that are judged, each twice, or attempted, in each comparison. A version that is undecided by then
    passes."""
    earlier: list[Age] = []
    """Earlier versions with which a new one is also compared, because small losses add up: `day` and `week`, the newest
    accepted version that is at least a day or a week old. Each is a comparison like that with the live version, and
    takes a free slot of `engine.max_loras` meanwhile. Default: none."""
    forgetting_answers: int = Field(0, ge=0)
    """How many first turns of the alias's drift set (`trainer.drift_trajectories`) a new version answers, so that its
    mean score on them shows what it has forgotten. A judge scores each answer; one that only compares does it beside
    the recorded answer, twice. 0: none."""
    forgetting_max: float | None = Field(None, gt=0)
    """Reject a version that is shown to score lower on the drift set than one of its ancestors, by more than this mean
    difference. It needs `forgetting_answers`. Default: measured only."""
    scenarios: Path | None = None
    """JSONL file of held-out scenarios, as `campaign.val_scenarios`. The learner attempts them with the new and the
    live version; their success rates decide, and no judge is called. It needs `agent` and `success`."""
    agent: str | None = None
    """What attempts a scenario, as `campaign.agent`. `campaign.python`, `cwd`, `agent_env`, `concurrency` and
    `attempt_timeout_s` apply to it."""
    success: str | None = None
    """`module:function` that decides whether an attempt succeeded, as `campaign.success`; never a part of the judge's
    reward."""

    @model_validator(mode="after")
    def _whole(self) -> GateSettings:
        given = {"scenarios": self.scenarios, "agent": self.agent, "success": self.success}
        missing = [name for name, value in given.items() if not value]
        if missing and len(missing) < len(given):
            there = " and ".join(f"gate.{name}" for name in given if name not in missing)
            raise ValueError(
                f"{there} without {' and '.join(f'gate.{name}' for name in missing)}: held-out scenarios take all "
                "three. Give what is missing, or omit all three"
            )
        if self.forgetting_max is not None and not self.forgetting_answers:
            raise ValueError("gate.forgetting_max without gate.forgetting_answers: nothing is measured. Give both")
        if self.success and not is_function_path(self.success):
            raise ValueError(
                f"gate.success {self.success!r} is not a `module:function`: a gate's success function calls no judge"
            )
        return self


class ShadowSettings(BaseModel):
    """Which calls of an alias's live trajectories get shadow answers, to learn from: `[aliases.<name>.shadow]`.

    For traffic that never repeats, where a trajectory has no others to be compared with. Agents never see shadow
    answers, and no tool runs.
    """

    model_config = ConfigDict(extra="forbid")

    share: float = Field(0.0, ge=0, le=1)
    """Share of live trajectories in which one call gets shadow answers, after the trajectory ended. 0: none."""
    n: int = Field(4, ge=2, le=64)
    """Answers that are compared: the live one, and n - 1 shadow answers."""
    at: Literal["any", "first"] = "any"
    """`any`: a call drawn uniformly from the trajectory's main path. `first`: its first call."""
    budget: int | None = Field(None, ge=0)
    """Most tokens, read and sampled, that shadow answers may cost in 24 hours. Default: no limit."""
    max_in_flight: int = Field(4, ge=1)
    """A shadow answer is requested only while its engine has fewer open requests of this proxy than this."""


class AliasSettings(BaseModel):
    """A model name that agents ask for, and how its new versions come into service."""

    model_config = ConfigDict(extra="forbid")

    base_model: str | None = None
    """The engine's name of the base model. Default: `engine.name`."""
    promote: Promote = "gate"
    """How a new version comes into service. In every mode its files are checked, it is loaded and probed, and it
    answers the newest recorded first turns; broken answers reject it. `auto`: it is live after that. In the other modes
    a judge first compares its answers with the live version's. `gate`: it is live after that. `canary`: it gets
    `canary_share` of new trajectories, until their rewards or `hone promote` decide. `manual`: it waits for `hone
    promote`, and no further step begins meanwhile. Versions of a campaign pass as with `auto`."""
    canary_share: float = Field(0.1, gt=0, lt=1)
    """Share of new trajectories that a canary gets."""
    canary_max_age_s: float = Field(86_400.0, gt=0)
    """How long a version waits for a person with `promote = "manual"`, and a canary for trajectories that decide. After
    that it is rejected as `not_promoted`, and its trajectories may be trained on again. A canary never passes by its
    age."""
    canary_max_tasks: int = Field(400, ge=1)
    """Most tasks on which a canary's rewards are compared with the live version's. A canary that is undecided by then
    becomes live. It becomes live earlier once its reward is shown to be at most 0.05 lower, and is removed once any
    figure is shown to be worse."""
    gate: GateSettings = GateSettings()
    """What a new version must pass."""
    holdback_share: float = Field(0.1, ge=0, lt=1)
    """Share of new trajectories without a named group that stays on the previous version while a promoted one is
    watched. 0: none stays, and nothing is watched. Versions of a campaign hold none back. It takes one slot of
    `engine.max_loras`."""
    rollback_watch_s: float = Field(3600.0, gt=0)
    """How long a promoted version's trajectories are compared with those of the previous version. If they are shown to
    be worse, the alias rolls back automatically."""
    baseline: Literal["group", "running"] | None = None
    """What its trajectories' rewards are compared with in training. Default: `trainer.baseline`."""
    judge_recipe: str | None = None
    """The judge recipe of its trajectories, a name of [judge.recipes]. Default: `default`, the top of [judge]. A
    campaign's recipe takes precedence."""
    fallback: str | None = None
    """A model of `[[proxy.models]]` that answers while no engine can. Such calls are recorded as text and marked."""
    sampling: SamplingSettings = SamplingSettings()
    """How its calls are sampled."""
    shadow: ShadowSettings = ShadowSettings()
    """Which of its live calls get shadow answers, to learn from."""
    notes: dict[str, Any] = {}
    """Free-form notes, stored with the alias and shown with its versions."""
