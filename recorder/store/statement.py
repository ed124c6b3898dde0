"""A statement that is compiled once, and building blocks of such statements.

Owns: the text for SQLite with its parameters, and JSON as text. Refuses: running a statement
(`recorder.store.write_backends`), and the statements themselves (each folder has its own).
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

from sqlalchemy import (
    JSON,
    ColumnElement,
    Executable,
    Table,
    Text,
    TypeDecorator,
    bindparam,
    cast,
    insert,
    literal_column,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.compiler import SQLCompiler

from recorder.store.changes import mark_quiet

_DIALECT = sqlite.dialect(paramstyle="qmark")


class Statement:
    """A Core statement that is compiled once. `names`: the order of the parameters in a row.

    `elsewhere`: the same statement for PostgreSQL, if Core has no common construct (ON CONFLICT).

    Its changes need no notification: it changes no state, and new rows are due a window later at the earliest. So it
    increments no topic (`recorder.store.changes`); a test checks this for every statement.
    """

    __slots__ = ("_cores", "_lists", "names", "text")

    def __init__(self, core: Executable, elsewhere: Executable | None = None) -> None:
        compiled = core.compile(dialect=_DIALECT)  # type: ignore[attr-defined]  # every statement has it
        assert isinstance(compiled, SQLCompiler)
        self._cores = (mark_quiet(core), mark_quiet(elsewhere if elsewhere is not None else core))
        self.text = str(compiled)
        self.names: tuple[str, ...] = tuple(compiled.positiontup or ())
        self._lists = frozenset(name for name in self.names if f"__[POSTCOMPILE_{name}]" in self.text)

    def core(self, dialect_name: str) -> Executable:
        """Return the construct for a dialect."""
        return self._cores[dialect_name != "sqlite"]

    def spelled(self, values: dict[str, Any]) -> tuple[str, list[Any]]:
        """Return the text and its flat parameters, with lists (`IN`) expanded."""
        text, flat = self.text, []
        for name in self.names:
            if name in self._lists:
                text = text.replace(f"__[POSTCOMPILE_{name}]", ",".join("?" * len(values[name])))
                flat.extend(values[name])
            else:
                flat.append(values[name])
        return text, flat


# --- building blocks

# strings are matched first, so that their content is skipped
_BEYOND_JSON: Final = re.compile(r'"(?:[^"\\]|\\.)*"|-?Infinity|NaN')
_SPELLED: Final = {"NaN": "null", "Infinity": "1e999", "-Infinity": "-1e999"}


def column_json(value: object) -> str:
    """Return `value` as the text of a JSON column."""
    return postgres_json(json.dumps(value))


def postgres_json(text: str) -> str:
    """Return Python's JSON as PostgreSQL accepts it: infinity becomes a number above all doubles, NaN null."""
    if "NaN" not in text and "Infinity" not in text:
        return text
    return _BEYOND_JSON.sub(lambda match: _SPELLED.get(match.group(), match.group()), text)


class RawJson(TypeDecorator[Any]):
    """A JSON column whose values are text already, because rows are made once for every backend."""

    impl = JSON
    cache_ok = True

    def bind_processor(self, dialect: Any) -> None:
        """Pass the text through."""
        return


def insert_values(table: Table) -> dict[str, Any]:
    """Return a parameter for every column, by the column's name."""
    return {c.name: bindparam(c.name, type_=RawJson() if isinstance(c.type, JSON) else c.type) for c in table.c}


def insert_into(table: Table) -> Statement:
    """Return an INSERT of whole rows, in the order of the schema's columns."""
    return Statement(insert(table).values(insert_values(table)))


def insert_new(table: Table) -> Statement:
    """As `insert_into`, but an existing row stays unchanged."""
    values = insert_values(table)
    return Statement(
        sqlite.insert(table).values(values).on_conflict_do_nothing(),
        postgresql.insert(table).values(values).on_conflict_do_nothing(),
    )


def equals_literal(column: ColumnElement[Any], word: str) -> ColumnElement[bool]:
    """Return the condition that a column has one of Hone's own constants (never outside text), as an SQL literal."""
    return column == literal_column(f"'{word}'")


def json_as_text(column: ColumnElement[Any]) -> ColumnElement[str]:
    """Return a JSON column as its stored text, by a cast, because PostgreSQL would return the decoded value."""
    return cast(column, Text())
