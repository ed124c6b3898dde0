"""`[notify]` of hone.toml: where Hone reports what an operator should know.

Owns: the fields, defaults and units, which addresses and secrets are accepted, and their values from the environment.
Refuses: sending (`proxy.notifications`), and importing anything but pydantic and leaf modules.
"""

from __future__ import annotations

import base64
import binascii
import os
from typing import Final, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from recorder.base.urls import is_safe_address

Kind = Literal[
    "version_live",
    "version_rejected",
    "version_rolled_back",
    "alarm",
    "learner_paused",
    "store_trouble",
    "review_waiting",
]
Form = Literal["hone", "slack"]
KINDS: Final[tuple[Kind, ...]] = (
    "version_live",
    "version_rejected",
    "version_rolled_back",
    "alarm",
    "learner_paused",
    "store_trouble",
    "review_waiting",
)
SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - of a secret in the form of Standard Webhooks, not a secret
MIN_SECRET_BYTES: Final = 16  # 128 bits cannot be guessed


class NotifySettings(BaseModel):
    """Where Hone reports what an operator should know, by a POST (docs/notifications.md)."""

    model_config = ConfigDict(extra="forbid")

    url: SecretStr | None = None
    """The address that gets the POST. It is kept like a key, because the address of a Slack channel is one. Default:
    `url_env`; with neither, nothing is sent."""
    url_env: str | None = None
    """The environment variable that holds the address, so that no file has to."""
    form: Form = "hone"
    """The form of the body. `hone`: JSON with kind, text, time, project, link and figures, signed with `secret`.
    `slack`: what an incoming webhook of Slack takes; its address must be https, because whoever has it can post."""
    secret: SecretStr | None = None
    """The key of the signature: at least 16 characters, or `whsec_` and base64. Default: `secret_env`. The form `hone`
    needs one."""
    secret_env: str | None = None
    """The environment variable that holds the secret, so that no file has to."""
    kinds: list[Kind] = list(KINDS)
    """What is reported. Default: everything."""
    pages_url: str | None = None
    """The address at which people open Hone's pages, without `/hone`, for links: `https://hone.example.com`. Default:
    `proxy.url`, else `proxy.host` and `proxy.port`."""
    timeout_s: float = Field(10.0, gt=0, le=20)
    """Time limit of one POST."""

    @property
    def is_on(self) -> bool:
        """Whether anything is sent."""
        return self.url is not None or self.url_env is not None

    # On the whole section, so that an error never quotes the address.
    @model_validator(mode="after")
    def _fit(self) -> NotifySettings:
        for name in ("url", "secret"):
            if getattr(self, name) is not None and getattr(self, f"{name}_env") is not None:
                raise ValueError(f"give `{name}` or `{name}_env`, not both")
        if self.url is not None:
            check_url(self.url.get_secret_value(), self.form)
        if self.secret is not None:
            secret_bytes(self.secret.get_secret_value())
        if self.is_on and self.form == "hone" and self.secret is None and self.secret_env is None:
            raise ValueError(
                'the form "hone" is signed, and there is no `secret`: give one, or name its variable as `secret_env`'
            )
        if self.pages_url is not None and not _is_plain_address(self.pages_url):
            raise ValueError("pages_url is not an address: write it as https://host, without a login or a query")
        return self

    def read_url(self) -> str | None:
        """Return the address, also from the environment; None: nothing is sent. Raises ValueError."""
        url = self.url.get_secret_value() if self.url is not None else _variable("url_env", self.url_env)
        if url is not None:
            check_url(url, self.form)
        return url

    def read_key(self) -> bytes | None:
        """Return the key of the signature, also from the environment; None: unsigned. Raises ValueError."""
        secret = self.secret.get_secret_value() if self.secret is not None else _variable("secret_env", self.secret_env)
        return None if secret is None else secret_bytes(secret)


def check_url(url: str, form: Form) -> None:
    """Raise ValueError for an address that gets no notification. The message does not quote it."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in ("http", "https") or not url.isprintable() or " " in url:
        raise ValueError("the address of notifications is not a URL: write it as https://host/path")
    if "@" in parts.netloc or parts.fragment:
        raise ValueError("the address of notifications has a login or a fragment: write it without")
    if form == "slack" and not is_safe_address(url):
        raise ValueError("whoever reads the address of a Slack channel can post there: give the https address")


def secret_bytes(secret: str) -> bytes:
    """Return the key that a secret stands for. Raises ValueError, without quoting it."""
    key = secret.encode()
    if secret.startswith(SECRET_PREFIX):
        try:
            key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
        except binascii.Error:
            raise ValueError("the secret of notifications begins with whsec_, and no base64 follows") from None
    if len(key) < MIN_SECRET_BYTES:
        raise ValueError(f"the secret of notifications is too short: give at least {MIN_SECRET_BYTES} characters")
    return key


def _variable(setting: str, name: str | None) -> str | None:
    if name is None:
        return None
    if not (value := os.environ.get(name)):
        raise ValueError(f"notify.{setting} names the variable {name}, which is not set: set it")
    return value


def _is_plain_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return (
        bool(parts.hostname)
        and parts.scheme in ("http", "https")
        and not (parts.query or parts.fragment)
        and ("@" not in parts.netloc)
    )
