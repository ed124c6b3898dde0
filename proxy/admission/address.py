"""The address that a call states: parsed from its path, its key and its headers, and checked.

Owns: the grammar of `/g/<group>/t/<trajectory>/…` and `/t/<trajectory>/…`, and the `x-hone-*` request headers. Refuses:
looking anything up, and guessing: what a caller did not state stays None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from proxy.errors import BadRequest, Forbidden
from recorder.errors import InvalidId
from recorder.ids import check_external
from recorder.messages.calls import ANYBODY, Address, KeyAccess
from recorder.states import CallKind, Purpose

MAX_TAGS = 32
MAX_TAG_CHARS = 256
MAX_GROUP_SIZE = 4096

E = TypeVar("E", bound=StrEnum)


class AddressSource(StrEnum):
    """How a caller named its trajectory, strongest first."""

    PATH = "path"
    KEY = "key"
    HEADER = "header"
    ASK_AGAIN = "ask_again"  # no caller's: a person asks a recorded call again (`proxy.recorded_requests.repeater`)


@dataclass(frozen=True, slots=True)
class NamedTrajectory:
    """The trajectory that a path, a key or headers name. `group` alone is a new member of that group."""

    trajectory: str | None
    group: str | None

    def __str__(self) -> str:
        return f"{self.group}/{self.trajectory}" if self.group else str(self.trajectory)


@dataclass(frozen=True, slots=True)
class StatedAddress:
    """All that a call states about its trajectory. `source` is None if it names none."""

    address: Address
    source: AddressSource | None


NOWHERE = StatedAddress(Address(), None)


def parse_named(text: str) -> NamedTrajectory:
    """Read what `str(NamedTrajectory)` wrote: the trajectory that a key was created for."""
    group, _, trajectory = text.rpartition("/")
    return NamedTrajectory(trajectory, group or None)


def split_path(raw_path: bytes) -> tuple[NamedTrajectory | None, bytes]:
    """Split a path into the trajectory that its address names and the path behind the address.

    Works on the undecoded path, in which a legal id is unchanged. Raises BadRequest for illegal ids, `..` and
    percent-encoding among them.
    """
    if not raw_path.startswith((b"/g/", b"/t/")):
        _refuse_dots(raw_path)
        return None, raw_path
    parts = raw_path.decode("latin-1").split("/")
    if parts[1] == "t":
        named, rest = NamedTrajectory(_id(parts, 2, "trajectory"), None), parts[3:]
    else:
        group = _id(parts, 2, "group")
        if len(parts) < 4 or parts[3] != "t":
            raise BadRequest(f"the path {_quoted(raw_path)} names a group only: write /g/<group>/t/<trajectory>/v1/…")
        named, rest = NamedTrajectory(_id(parts, 4, "trajectory"), group), parts[5:]
    path = ("/" + "/".join(rest)).encode("latin-1")
    _refuse_dots(path)
    return named, path


def complete_path(path: bytes, routes: frozenset[bytes]) -> bytes:
    """Return the path that a client means whose base_url has a `/v1` too little or too much, or a slash too much.

    `path`: behind the address. `routes`: the first segments below `/v1`.
    """
    if path.startswith(b"/hone/v1/"):
        return path.rstrip(b"/")
    segments = [segment for segment in path.split(b"/") if segment]
    while segments[:2] == [b"v1", b"v1"]:
        del segments[0]
    if segments and segments[0] in routes:
        segments.insert(0, b"v1")
    return b"/" + b"/".join(segments) if segments[:1] == [b"v1"] else path


def _id(parts: list[str], at: int, what: str) -> str:
    return _checked(parts[at] if at < len(parts) else "", f"the {what} in the path")


def _checked(value: str, what: str) -> str:
    try:
        return check_external(value, what)
    except InvalidId as e:
        raise BadRequest(str(e), code="invalid_id") from e


def _refuse_dots(raw_path: bytes) -> None:
    lowered = raw_path.lower().replace(b"%2e", b".") if b"%" in raw_path else raw_path
    if b"/." in lowered and any(part in (b".", b"..") for part in lowered.split(b"/")):
        raise BadRequest(f"the path {_quoted(raw_path)} has a segment '.' or '..': remove it", code="invalid_id")


def _quoted(raw_path: bytes) -> str:
    return repr(raw_path[:160].decode("latin-1"))


def combine_addresses(
    path: NamedTrajectory | None,
    key: NamedTrajectory | None,
    headers: Mapping[bytes, bytes],
    access: KeyAccess = ANYBODY,
) -> StatedAddress:
    """Combine what path, key and headers state; the strongest source names the trajectory.

    Raises BadRequest for a malformed header, and Forbidden where the path names another trajectory than the key.
    """
    if key is not None and path is not None and path != key:
        raise Forbidden(f"this key belongs to the trajectory {key}, not to {path}: use it with its own address")
    by_header = None
    for name in headers:  # no generator: 5 function calls less for each request
        if name.startswith(b"x-hone-"):
            by_header = _from_headers(headers)
            break
    if by_header is None:
        if path is None and key is None:
            return NOWHERE if access == ANYBODY else StatedAddress(Address(access=access), None)
        by_header = NOWHERE.address
    named, source = (
        (path, AddressSource.PATH) if path else (key, AddressSource.KEY) if key else (None, AddressSource.HEADER)
    )
    if named is None:
        named = NamedTrajectory(by_header.trajectory, by_header.group)
    address = Address(
        trajectory=named.trajectory,
        group=named.group,
        group_size=by_header.group_size,
        purpose=by_header.purpose,
        origin=by_header.origin,
        call_kind=by_header.call_kind,
        done=by_header.done,
        tags=by_header.tags,
        access=access,
    )
    return StatedAddress(address, source if address.trajectory or address.group else None)


def _from_headers(headers: Mapping[bytes, bytes]) -> Address:
    def read(name: str, convert: Callable[[str, str], T]) -> T | None:
        value = headers.get(name.encode())
        return None if value is None else convert(value.decode("latin-1").strip(), f"the header {name}")

    return Address(
        trajectory=read("x-hone-trajectory", _checked),
        group=read("x-hone-group", _checked),
        group_size=read("x-hone-group-size", _size),
        purpose=read("x-hone-purpose", _one_of(Purpose)) or Purpose.TRAIN,
        call_kind=read("x-hone-turn", _one_of(CallKind)),
        done=read("x-hone-done", _flag) or False,
        tags=read("x-hone-tags", _tags) or {},
    )


T = TypeVar("T")


def _one_of(enum: type[E]) -> Callable[[str, str], E]:
    def convert(value: str, what: str) -> E:
        try:
            return enum(value.lower())
        except ValueError as e:
            raise BadRequest(f"{what} is {value[:80]!r}: use one of {', '.join(enum)}") from e

    return convert


def _flag(value: str, what: str) -> bool:
    if value.lower() in {"1", "true", "yes"}:
        return True
    if value.lower() in {"0", "false", "no", ""}:
        return False
    raise BadRequest(f"{what} is {value[:80]!r}: use true or false")


def _size(value: str, what: str) -> int:
    if not value.isascii() or not value.isdigit() or len(value) > 9 or not 1 <= int(value) <= MAX_GROUP_SIZE:
        raise BadRequest(f"{what} is {value[:80]!r}: use a number from 1 to {MAX_GROUP_SIZE}")
    return int(value)


def _tags(value: str, what: str) -> dict[str, str]:
    tags = {}
    for pair in filter(None, (part.strip() for part in value.split(","))):
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not equals or not name or len(pair) > MAX_TAG_CHARS:
            raise BadRequest(f"{what} has {pair[:80]!r}: write name=value, name=value (each ≤ {MAX_TAG_CHARS} chars)")
        tags[name] = text
    if len(tags) > MAX_TAGS:
        raise BadRequest(f"{what} has {len(tags)} tags: at most {MAX_TAGS}")
    return tags
