"""What a tracker's run was sent already, kept in a file: a run that is gone on with is sent no step twice.

Owns: that file. Refuses: sending. An event is written down once its tracker has it: killed between the two, a run is
sent that one event again.
"""

from __future__ import annotations

from pathlib import Path

from recorder.processes import file_modes


class Sent:
    """The keys of all events sent."""

    def __init__(self, path: Path) -> None:
        file_modes.make_folder(path.parent)
        self._file = file_modes.appending(path)
        text = path.read_bytes()
        if text and not text.endswith(b"\n"):  # killed while it was written
            self._file.write(b"\n")
        self._keys = set(text.decode(errors="replace").splitlines())

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: str) -> None:
        """Write an event's key down."""
        self._keys.add(key)
        self._file.write(f"{key}\n".encode())
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
