"""Compiled SQL that all stores of one test process share.

SQLAlchemy compiles a statement once for each engine. A program has one store for its whole life; tests open thousands,
and would compile every statement again for each. Results do not change: stores of one kind are created alike.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any, Final

from sqlalchemy.ext.asyncio import create_async_engine

_MOST: Final = 5_000  # statements: the whole suite has fewer, but for those of property tests


class SharedStatements(dict[Any, Any]):
    """The `compiled_cache` of engines: the kind of database stands in the key, instead of the engine's own dialect."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(_shared(key), default)

    def __setitem__(self, key: Any, compiled: Any) -> None:
        if len(self) >= _MOST:
            self.clear()
        super().__setitem__(_shared(key), compiled)


def _shared(key: Any) -> Any:
    dialect, *rest = key
    return (dialect.name, dialect.driver, *rest)


_statements: Final = SharedStatements()


def share_statements(module: ModuleType) -> None:
    """Let the engines that a module creates share what they compile."""
    options = {"compiled_cache": _statements}
    vars(module)["create_async_engine"] = partial(create_async_engine, execution_options=options)
