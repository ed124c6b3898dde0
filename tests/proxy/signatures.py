"""What Litestar reads from the signatures of route handlers, kept for all apps of one test process.

A program makes one app; tests make thousands of the same routes, and reading the signatures takes a quarter of the
time in which a proxy starts and ends.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial, wraps
from types import FunctionType
from typing import Any

from litestar._signature.model import SignatureModel
from litestar.utils.signature import ParsedSignature


def keep_signatures() -> None:
    """Let all apps of this process share what was read. May be called again."""
    if not hasattr(ParsedSignature.from_fn, "__wrapped__"):
        ParsedSignature.from_fn = _kept(ParsedSignature.from_fn, _read_of)  # type: ignore[method-assign]
        SignatureModel.create = _kept(SignatureModel.create, _made_of)  # type: ignore[method-assign]


def _kept(make: Callable[..., Any], key_of: Callable[..., Any]) -> Any:
    found: dict[Any, Any] = {}

    @wraps(make)
    def from_memory(*args: Any, **given: Any) -> Any:
        key = key_of(*args, **given)
        if key is None:
            return make(*args, **given)
        if key not in found:
            found[key] = make(*args, **given)
        return found[key]

    return from_memory


def _read_of(fn: Any, signature_namespace: dict[str, Any]) -> Any:
    place = _place(fn)
    return place and (place, *map(id, signature_namespace.values()))


def _made_of(
    dependency_name_set: set[str], fn: Any, parsed_signature: object, type_decoders: Any, data_dto: Any = None
) -> Any:
    place = None if data_dto else _place(fn)
    return place and (place, frozenset(dependency_name_set), *map(_decoder, type_decoders))


def _decoder(pair: tuple[Any, Any]) -> Any:
    """What a decoder is, whichever app it was made for: a plugin makes each app a `partial` of the same function."""
    is_its_type, decode = pair
    if isinstance(decode, partial):
        return (is_its_type, decode.func, decode.args, *decode.keywords.items())
    return (is_its_type, decode)


def _place(fn: Any) -> Any:
    """Where a function is written: one that is made for each app has its signature from there alone."""
    if not isinstance(fn, FunctionType):
        return None
    written = inspect.unwrap(fn)
    made = fn.__closure__ or written.__closure__
    if made and (written.__defaults__ or written.__kwdefaults__ or not _is_text(written.__annotations__)):
        return None
    return (fn.__code__, written.__code__) if made else fn


def _is_text(annotations: dict[str, Any]) -> bool:
    return all(isinstance(one, str) for one in annotations.values())
