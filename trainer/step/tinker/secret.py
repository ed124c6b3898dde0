"""The key of a training service: read from the environment, sent to the service, and written nowhere else.

Owns: reading it, masking it, and guarding the logs of this process. Refuses: sending it
(`trainer.step.tinker.session`).

The `tinker` library reports errors to its service with all headers of the failed request, the key among them, and its
logger `tinker._base_client` writes the body of every request at DEBUG, these reports included. So the reports are
turned off, the library's own messages below WARNING are blanked, and every log record of the process, whoever makes it,
is masked where it is made: no handler, present or future, sees the key.
"""

from __future__ import annotations

import logging
import os
import re
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from recorder.base.urls import MASK, mask_parameters
from trainer.errors import TinkerRefused

VARIABLE: Final = "TINKER_API_KEY"
# A header takes other characters, but an error about one that it refuses would quote the key.
_KEY: Final = re.compile(r"(tml-|eyJ)[A-Za-z0-9._~-]{4,}")
_REPORTS: Final = "TINKER_TELEMETRY"  # the library's own switch
# What the library logs below WARNING: bodies of requests, and headers as HTTP/2 encodes them.
_CHATTY: Final = ("tinker", "hpack", "h2", "h11", "httpcore", "pyqwest")
_BLANK: Final = "(a message of the tinker library, which may hold a key)"


class ServiceKey:
    """A key that no repr, format or traceback shows."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __repr__(self) -> str:
        return f"ServiceKey({MASK})"

    def reveal(self) -> str:
        """The key itself, to be sent."""
        return self._value

    def mask(self, text: str) -> str:
        """A text without the key, and without the signatures of links."""
        return mask_parameters(text.replace(self._value, MASK))


def read_key(environ: Mapping[str, str]) -> ServiceKey:
    """The key of the environment. Raises `TinkerRefused` if there is none, or what is there is none."""
    value = environ.get(VARIABLE, "").strip()
    if not value:
        raise TinkerRefused(f'trainer.backend = "tinker" needs the service\'s key in the environment: set {VARIABLE}')
    if _KEY.fullmatch(value) is None:
        raise TinkerRefused(
            f"the environment variable {VARIABLE} holds no key of a Tinker service: those begin with tml- and have "
            "letters, digits, dots, dashes, tildes and underscores alone. Set it again"
        )
    return ServiceKey(value)


class _LogGuard:
    """The state of the process while at least one key is guarded: the first key changes it, the last one restores it.

    Guards may overlap in any order: a trainer opens a new client before it closes the one before.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._keys: list[ServiceKey] = []
        self._restore = ExitStack()

    def add(self, key: ServiceKey) -> None:
        with self._lock:
            if not self._keys:
                self._begin()
            self._keys = [*self._keys, key]

    def remove(self, key: ServiceKey) -> None:
        with self._lock:
            at = next(number for number, one in enumerate(self._keys) if one is key)
            self._keys = [*self._keys[:at], *self._keys[at + 1 :]]
            if not self._keys:
                self._restore.close()

    def mask(self, text: str) -> str:
        for key in self._keys:
            text = key.mask(text)
        return text

    def _begin(self) -> None:
        factory, reports = logging.getLogRecordFactory(), os.environ.get(_REPORTS)
        os.environ[_REPORTS] = "0"
        self._restore.callback(_set_variable, _REPORTS, reports)
        logging.setLogRecordFactory(_masking(factory, self.mask))
        self._restore.callback(logging.setLogRecordFactory, factory)
        for logger in map(logging.getLogger, _CHATTY):
            self._restore.callback(logger.setLevel, logger.level)
            logger.setLevel(logging.WARNING)


_GUARD: Final = _LogGuard()


@contextmanager
def guarded_logs(key: ServiceKey) -> Iterator[None]:
    """Within: no log record of this process holds the key, and the library reports nothing to its service."""
    _GUARD.add(key)
    try:
        yield
    finally:
        _GUARD.remove(key)


def _set_variable(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def _masking(make: Callable[..., logging.LogRecord], mask: Callable[[str], str]) -> Callable[..., logging.LogRecord]:
    """A factory of records in which keys are masked: in the message, its arguments, the traceback and the stack."""

    def made(*args: Any, **named: Any) -> logging.LogRecord:
        record = make(*args, **named)
        if record.levelno < logging.WARNING and record.name.partition(".")[0] in _CHATTY:
            record.msg, record.args, record.exc_info, record.stack_info = _BLANK, (), None, None
            return record
        try:
            text = record.getMessage()
        except Exception:  # noqa: BLE001 - logging would print the arguments to say that they do not fit
            record.msg, record.args = "(a log message whose arguments do not fit it)", ()
        else:
            if (masked := mask(text)) != text:
                record.msg, record.args = masked, ()
        if record.exc_info and record.exc_info[0] is not None:
            shown = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
            if (masked := mask(shown)) != shown:
                record.exc_text, record.exc_info = masked, None
        if record.stack_info:
            record.stack_info = mask(record.stack_info)
        return record

    return made
