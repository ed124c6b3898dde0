"""`[mcp.<name>]` of hone.toml: the MCP servers behind the gateway.

Owns: their fields, defaults and units. Refuses: connecting, and importing anything but pydantic.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

NAME: Final = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]|_(?!_)){0,31}(?<!_)")


class McpServerSettings(BaseModel):
    """One MCP server: a URL (streamable HTTP), or a command that speaks on its standard input and output."""

    model_config = ConfigDict(extra="forbid")

    url: str | None = None
    """Address of the server, for example `http://127.0.0.1:9000/mcp`, without a login: use `token` or `headers`."""
    command: str | None = None
    """A program on this machine to start instead."""
    args: list[str] = []
    """Arguments of the command."""
    env: dict[str, SecretStr] = {}
    """Environment variables of the command, in addition to PATH, HOME and the like."""
    cwd: Path | None = None
    """Folder in which the command runs."""
    per: Literal["session", "shared"] = "session"
    """`session`: each caller gets a process of its own, so that no two trajectories share a browser or shell. `shared`:
    all callers share one, for a program that keeps no state between calls, or is too large to start often. A caller is
    a session of the protocol; where the protocol has none (2026-07-28), the trajectory in the address, else the key.
    Callers with neither share one process. One more process only lists what the server offers."""
    max_sessions: int | None = Field(None, gt=0)
    """Most concurrent sessions of callers at this server; further ones are refused. Default: 1024 with a `url`; 32 with
    a `command`, because each is a process.
    """
    headers: dict[str, SecretStr] = {}
    """HTTP headers of every request to the server."""
    token: SecretStr | None = None
    """Sent to the server as `Authorization: Bearer`. A caller's own key is never passed on."""
    allow: list[str] = ["*"]
    """Names of tools, prompts and resource URIs that callers may see and use; `*` and `?` are wildcards."""
    deny: list[str] = []
    """Names that callers may not see or use, even if `allow` has them."""
    timeout_s: float = Field(300.0, gt=0)
    """Time limit of one request to the server."""
    max_answer_mib: float = Field(16.0, gt=0)
    """Largest answer of the server to one request, in MiB after decoding. The call of a larger one fails, alone."""
    connect_timeout_s: float | None = Field(None, gt=0)
    """Time limit for starting the server, connecting, and listing what it offers. Default: 5 with a `url`; 20 with a
    `command`, which starts a whole program."""

    @property
    def connect_s(self) -> float:
        """The connect timeout in force."""
        return self.connect_timeout_s or (5.0 if self.url is not None else 20.0)

    @property
    def max_answer_bytes(self) -> int:
        """The bound of an answer in bytes."""
        return int(self.max_answer_mib * 2**20)

    @property
    def shared(self) -> bool:
        """Whether all callers share one process."""
        return self.command is not None and self.per == "shared"

    @property
    def most_sessions(self) -> int:
        """The bound of sessions in force."""
        return self.max_sessions or (1024 if self.url is not None else 32)

    @model_validator(mode="after")
    def _one_of_both(self) -> McpServerSettings:
        if (self.url is None) == (self.command is None):
            raise ValueError("give either `url` or `command`")
        if self.url is None and (self.headers or self.token):
            raise ValueError("`headers` and `token` are for a server with a `url`; give a command its secrets in `env`")
        if self.command is None and (self.args or self.env or self.cwd or "per" in self.model_fields_set):
            raise ValueError("`args`, `env`, `cwd` and `per` are for a server with a `command`")
        return self

    @field_validator("url")
    @classmethod
    def _is_url(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("http://", "https://")):
            raise ValueError("it is not a URL: write it as http://host:port/mcp")
        if url is not None and "@" in urlsplit(url).netloc:
            raise ValueError(
                "it has a login in it, which logs and errors of other programs would show: give the server's token as "
                "`token`, or a user and a password as `headers = { authorization = 'Basic …' }`"
            )
        return url


def check_names(servers: dict[str, McpServerSettings]) -> dict[str, McpServerSettings]:
    """The servers. Raises ValueError for a name that cannot be split from `server__tool`."""
    for name in servers:
        if not NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is not a name for an MCP server: use up to 32 letters, digits, '-' and single '_'"
            )
    return servers
