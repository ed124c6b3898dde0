"""Files of rows: one JSON object a line, or parquet with the same columns, each row read by a form's own function.

Owns: which row is wrong and where, and that a file with one wrong row is not used at all. Refuses: the forms of rows
(`trainer.demonstrations.conversations`, `trainer.preferences.pair_files`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from trainer.errors import DemonstrationsInvalid
from trainer.tasks.json_objects import DuplicateKeys, FileFault, InvalidObject, read_objects

T = TypeVar("T")
ReadRow = Callable[[Mapping[str, Any], str], T]  # a row's fields and its name, FILE:LINE, to what it holds
_MOST_SHOWN: Final = 5


def read_rows(file: Path, read: ReadRow[T], what: str) -> list[T]:
    """Read a file. `read` raises `InvalidObject` for a row of another form; `what`: a row's name in errors.

    Raises `DemonstrationsInvalid`, with line and column of each fault, if any row is wrong or none is there.
    """
    found: list[T] = []
    faults: list[str] = []
    for one in _rows(file, read):
        if isinstance(one, _Fault):
            faults.append(str(one))
        else:
            found.append(one)
    if faults:
        more = f"\n… and {len(faults) - _MOST_SHOWN} more" if len(faults) > _MOST_SHOWN else ""
        raise DemonstrationsInvalid(
            f"{file} is not used, because some of it is wrong:\n" + "\n".join(faults[:_MOST_SHOWN]) + more
        )
    if not found:
        raise DemonstrationsInvalid(f"{file} has no {what}")
    return found


class _Fault(str):
    """Where a row is wrong, and why."""


def _rows(file: Path, read: ReadRow[T]) -> Iterator[T | _Fault]:
    try:
        if file.suffix == ".parquet":
            yield from _parquet_rows(file, read)
        else:
            yield from _json_rows(file, file.read_bytes().split(b"\n"), read)
    except OSError as e:
        raise DemonstrationsInvalid(f"{file} cannot be read: {e.strerror or e}") from e


def _json_rows(file: Path, lines: Sequence[bytes], read: ReadRow[T]) -> Iterator[T | _Fault]:
    for one in read_objects(lines):
        if isinstance(one, FileFault):
            yield _Fault(f"{file}:{one.line}: {one.why}")
            continue
        try:
            yield read(_require_object(one.value), f"{file}:{one.line}")
        except InvalidObject as e:
            line, column = one.place_of(e)
            yield _Fault(f"{file}:{line}:{column}: {one.name}{e}")


def _parquet_rows(file: Path, read: ReadRow[T]) -> Iterator[T | _Fault]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as e:
        raise DemonstrationsInvalid(f"{file}: parquet needs the extra `data`: pip install 'hone-proxy[data]'") from e
    number = 0
    try:
        for batch in parquet.ParquetFile(file).iter_batches(batch_size=1000):
            for value in batch.to_pylist():
                number += 1
                try:
                    yield read(_require_object(_without_none(value)), f"{file}: row {number}")
                except InvalidObject as e:
                    column = f", column {e.key}" if e.key is not None else ""
                    yield _Fault(f"{file}: row {number}{column}: {e}")
    except ArrowException as e:
        raise DemonstrationsInvalid(f"{file} is not parquet: {e}") from e


def _without_none(value: Any) -> Any:
    """A value of parquet without the fields that a row lacks: every row of a column has the fields of all."""
    if isinstance(value, dict):
        return {key: _without_none(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_without_none(one) for one in value]
    return value


def _require_object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidObject("a row is an object")
    if isinstance(value, DuplicateKeys):
        raise InvalidObject(f"{value.key!r} is given twice", value.key, nth=2)
    return value
