"""What `wandb` wrote offline, read back: its file of records, which is a log as LevelDB writes one.

A file begins with 7 bytes of its own; then come blocks of 32 KiB, in them chunks with a checksum (4 bytes), a length
(2) and a kind (1): whole, first, middle or last of a record.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

_BLOCK, _HEAD, _BEGINNING = 32768, 7, 7
_WHOLE, _FIRST, _LAST = 1, 2, 4


def records(path: Path) -> Iterator[Any]:
    """All of a file's records."""
    from wandb.proto import wandb_internal_pb2  # takes a second, which every worker would wait for

    proto: Any = wandb_internal_pb2  # what is in it depends on the version of protobuf that is installed
    data, at, gathered = path.read_bytes(), _BEGINNING, b""
    assert data.startswith(b":W&B")
    while at + _HEAD <= len(data):
        if _BLOCK - at % _BLOCK < _HEAD:  # what is left of the block holds no chunk
            at += _BLOCK - at % _BLOCK
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + _HEAD])
        piece = data[at + _HEAD : at + _HEAD + length]
        at += _HEAD + length
        gathered = piece if kind in (_WHOLE, _FIRST) else gathered + piece
        if kind in (_WHOLE, _LAST):
            yield proto.Record.FromString(gathered)


def history(path: Path) -> list[dict[str, Any]]:
    """The rows of figures."""
    return [
        {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in records(path)
        if record.WhichOneof("record_type") == "history"
    ]


OURS: Final = ("_timestamp", "_runtime", "_step", "step")


def figures(row: dict[str, Any]) -> dict[str, Any]:
    """What of a row is ours."""
    return {name: value for name, value in row.items() if name not in OURS}
