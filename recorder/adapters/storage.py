"""The place behind `adapters.url`: a folder, or a bucket of S3, Google Cloud Storage or Azure, through fsspec.

    versions/<folder name>/adapter_model.safetensors …, manifest.json last
    removed/<folder name>       a version's folder was removed on purpose

Owns: writing a folder once, reading it with every hash verified, and removing it. Refuses: which folders are removed
(`recorder.maintenance.retention`), and when they are fetched (`recorder.adapters.sync`).

A folder without its manifest is not there yet. Two writers of one name write the same bytes, because the name has the
manifest's hash and the manifest those of all files. Credentials come from the environment, as each provider's client
reads them; no error has them.

Its functions block: call them in a thread.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from recorder.adapters.folder_names import MANIFEST, is_folder_name, listed_files, require_sha256
from recorder.base.connection_failures import describe_failure
from recorder.base.urls import MASK, mask_parameters
from recorder.errors import AdapterDamaged, AdaptersUnavailable, NotFound
from recorder.processes import durable_folders, file_modes

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

VERSIONS: Final = "versions"
REMOVED: Final = "removed"
_EXTRAS: Final = {"s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "abfs": "az", "abfss": "az"}
_SECRET_VARIABLE: Final = re.compile(r"KEY|SECRET|TOKEN|PASSW|SAS|CREDENTIAL|CONNECTION_STRING")
_SHORTEST_SECRET: Final = 8  # characters: shorter values are words


class AdapterStorage:
    """The adapters at a URL. It connects at its first use."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._opened: tuple[AbstractFileSystem, str] | None = None

    def names(self) -> set[str]:
        """Return the names of the folders that are there, complete. Raises `AdaptersUnavailable`."""
        with self._errors("could not be listed"):
            fs, root = self._open()
            fs.invalidate_cache()
            try:
                found: list[str] = fs.find(f"{root}/{VERSIONS}")
            except FileNotFoundError:
                found = []
            if not found:  # nothing was published yet, or the URL is wrong
                self._require_bucket(fs, root)
            parts = [path.rsplit("/", 2) for path in found]
        return {part[1] for part in parts if len(part) == 3 and part[2] == MANIFEST and is_folder_name(part[1])}

    def publish(self, folder: Path) -> None:
        """Write a complete local folder under its name. Nothing happens if it is there already.

        Raises `AdaptersUnavailable`, and `AdapterDamaged` if other files have its name.
        """
        name = folder.name
        ours = (folder / MANIFEST).read_bytes()
        files = listed_files(ours, name, str(folder / MANIFEST))
        with self._errors(f"could not take {name}"):
            fs, root = self._open()
            theirs = self._read(f"{root}/{VERSIONS}/{name}/{MANIFEST}")
            if theirs is None:
                if self._is_folder(fs):
                    _copy_folder(folder, _make_part(Path(root), VERSIONS))
                else:
                    for file in (*files, MANIFEST):  # the manifest last: with it the folder is complete
                        self._put(folder / file, f"{root}/{VERSIONS}/{name}/{file}")
        if theirs not in (None, ours):
            raise AdapterDamaged(f"{self.url}/{VERSIONS}/{name} has another manifest than {folder}: it was changed.")

    def fetch(self, name: str, into: Path, owner: str, manifest_sha256: str | None = None) -> Path:
        """Copy a folder into `into` and verify every file; only then it gets its name. Return it.

        Nothing happens if it is there already. `owner`: of the unfinished copy. Raises `NotFound` if it is not at the
        URL, `AdapterDamaged` if its files do not match its manifest, and `AdaptersUnavailable`.
        """
        final = into / name
        if final.is_dir():
            return final
        with self._errors(f"could not give {name}", into), durable_folders.unfinished_folder(into, owner) as draft:
            _, root = self._open()
            where = f"{self.url}/{VERSIONS}/{name}"
            raw = self._read(f"{root}/{VERSIONS}/{name}/{MANIFEST}")
            if raw is None:
                raise NotFound(f"{where} is not there: was it published, with adapters.url set for the learner?")
            (draft / MANIFEST).write_bytes(raw)
            for file, sha256 in listed_files(raw, name, f"{where}/{MANIFEST}", manifest_sha256).items():
                self._get(f"{root}/{VERSIONS}/{name}/{file}", draft / file, f"{where}/{file}")
                require_sha256(draft / file, sha256, f"{where}/{file}")
            try:
                return durable_folders.finish_folder(draft, name)
            except OSError as e:
                if e.errno in (errno.ENOTEMPTY, errno.EEXIST):  # another process has just fetched it
                    return final
                raise

    def remove(self, name: str) -> None:
        """Remove a folder, and record that, so that hosts remove their copies. Nothing happens if it is not there.

        Raises `AdaptersUnavailable`. A removal that was interrupted may be repeated.
        """
        with self._errors(f"could not remove {name}"):
            fs, root = self._open()
            fs.invalidate_cache()
            try:
                found = fs.find(f"{root}/{VERSIONS}/{name}")
            except FileNotFoundError:
                return
            if not found:
                return
            if self._is_folder(fs):
                _make_part(Path(root), REMOVED)
            fs.pipe_file(f"{root}/{REMOVED}/{name}", name.encode())
            for path in sorted(found, key=lambda path: not path.endswith(MANIFEST)):
                fs.rm_file(path)
            if self._is_folder(fs):
                durable_folders.remove_folder(Path(root) / VERSIONS / name)

    def was_removed(self, name: str) -> bool:
        """Whether a folder was removed on purpose. Raises `AdaptersUnavailable`."""
        with self._errors("could not be read"):
            fs, root = self._open()
            fs.invalidate_cache()
            return bool(fs.exists(f"{root}/{REMOVED}/{name}"))

    def _open(self) -> tuple[AbstractFileSystem, str]:
        if self._opened is None:
            from fsspec.core import url_to_fs

            fs, root = url_to_fs(self.url, skip_instance_cache=True)
            self._opened = fs, root.rstrip("/")
        return self._opened

    def _require_bucket(self, fs: AbstractFileSystem, root: str) -> None:
        """Raise `FileNotFoundError` if the bucket of an empty listing is not there; a folder is made when needed."""
        bucket = root.partition("/")[0]
        if not self._is_folder(fs) and not fs.exists(bucket):
            raise FileNotFoundError(f"no bucket or container {bucket}")

    @staticmethod
    def _is_folder(fs: AbstractFileSystem) -> bool:
        from fsspec.implementations.local import LocalFileSystem

        return isinstance(fs, LocalFileSystem)

    def _opened_folder(self) -> bool:
        return self._opened is not None and self._is_folder(self._opened[0])

    def _read(self, path: str) -> bytes | None:
        """A small file's content; None: it is not there."""
        fs, _ = self._open()
        try:
            content: bytes = fs.cat_file(path)
        except FileNotFoundError:
            return None
        return content

    def _get(self, path: str, file: Path, where: str) -> None:
        """Copy a file here, whole."""
        fs, _ = self._open()
        try:
            fs.get_file(path, str(file))
        except FileNotFoundError:
            raise NotFound(f"{where} is not there: it was removed.") from None
        fs.invalidate_cache()
        size, there = file.stat().st_size, int(fs.info(path)["size"])
        if size != there:
            raise AdaptersUnavailable(f"{where} was cut off: {size:,} of {there:,} bytes arrived.")

    def _put(self, file: Path, path: str) -> None:
        """Copy a file there, whole."""
        fs, _ = self._open()
        fs.put_file(str(file), path)
        fs.invalidate_cache()
        size, there = file.stat().st_size, int(fs.info(path)["size"])
        if size != there:
            raise AdaptersUnavailable(f"{self.url} cut {file.name} off: it has {there:,} of {size:,} bytes.")

    @contextmanager
    def _errors(self, fault: str, local: Path | None = None) -> Iterator[None]:
        """Report what fails within as `AdaptersUnavailable`, without credentials. `local`: where copies are written."""
        try:
            yield
        except (AdaptersUnavailable, AdapterDamaged, NotFound):
            raise
        except ImportError as e:
            extra = _EXTRAS.get(self.url.partition(":")[0])
            need = f"`pip install 'hone-proxy[{extra}]'`" if extra else "its package of fsspec"
            raise AdaptersUnavailable(f"{self.url} {fault}: it needs {need} ({e}).") from None
        except Exception as e:  # noqa: BLE001 - each provider's client has errors of its own
            # without a chain: a traceback of the client's error may show a signed request
            raise AdaptersUnavailable(self._sentence(e, fault, local)) from None

    def _sentence(self, error: Exception, fault: str, local: Path | None) -> str:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            return f"{self.url} {fault}: no space is left in {local or self.url}. Free some, or enlarge it."
        if isinstance(error, OSError) and error.filename and (local is not None or self._opened_folder()):
            return f"{self.url} {fault}: {error.filename}: {error.strerror}."  # of this machine, or mounted
        why = _without_secrets(describe_failure(error))
        if isinstance(error, PermissionError) or "Credential" in type(error).__name__:
            why = f"it does not accept this program's credentials ({why}). Set them in its environment (docs/deploy.md)"
        elif isinstance(error, FileNotFoundError):
            why = f"it is not there ({why}). Create the bucket or container, or correct adapters.url"
        return f"{self.url} {fault}: {why}."


def _make_part(root: Path, name: str) -> Path:
    """Make a part of a storage that is a folder, for the group that may read the folder, if there is one."""
    part = root / name
    if not part.is_dir():
        file_modes.make_folder(part)
        if file_modes.is_shared(root):
            part.chmod(file_modes.SHARED_FOLDER | stat.S_ISGID)
    return part


def _copy_folder(folder: Path, parent: Path) -> None:
    """Copy a folder durably: it appears complete or not at all."""
    with durable_folders.unfinished_folder(parent, "publish") as draft:
        for file in folder.iterdir():
            shutil.copyfile(file, draft / file.name)
        try:
            durable_folders.finish_folder(draft, folder.name)
        except OSError as e:
            if e.errno not in (errno.ENOTEMPTY, errno.EEXIST):  # another writer of the same files was first
                raise


def _without_secrets(text: str) -> str:
    """Return a client's text without the parameters of signed links, and the values of secret variables."""
    for name, value in os.environ.items():
        if len(value) >= _SHORTEST_SECRET and _SECRET_VARIABLE.search(name.upper()):
            text = text.replace(value, MASK)
    return mask_parameters(" ".join(text.split()))


def storage_at(url: str | None) -> AdapterStorage | None:
    """Return the storage of `adapters.url`; None: it is not set."""
    return None if url is None else AdapterStorage(url)
