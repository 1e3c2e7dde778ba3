"""State files in a folder of the blob store, each with a manifest.

    snap_...loomlog-state.gz    the state, written in pieces and flushed
    snap_...json                its manifest; a file without one is incomplete and treated as missing

The manifest is written to a temporary file, flushed and renamed after the file is complete, so it is the commit.
Writers need no lock, because every id is new. Removing deletes the manifest first. All replicas share the folder with
the payloads, and it outlives Postgres. All disk access runs in a thread.

Not chosen: blobs of the store (whole in memory, named by content and shared, so they could never be deleted); a topic
(a state may be larger than any record, and deleted content would stay in the log).

Before: services/application/transfer/state_files.py.
"""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.storage.private_files import create_file, make_folders

FILE_ID = re.compile(r"snap_[0-9]{1,16}_(?:[0-9a-f]{8}|[0-9a-f]{32})\Z")
SUFFIX = ".loomlog-state.gz"
MANIFEST_SUFFIX = ".json"
PARTIAL_SUFFIX = ".part"


class StateFiles:
    """The state files of one folder, which is created when missing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @asynccontextmanager
    async def open_for_write(self, file_id: str) -> AsyncIterator[IO[bytes]]:
        """Open a file for writing in threads; it is not visible before `commit`. Raises Transient or Permanent."""
        place = self._path(file_id, SUFFIX)
        file = await asyncio.to_thread(self._create, place)
        try:
            yield file
        except BaseException:
            file.close()
            place.unlink(missing_ok=True)
            raise
        file.close()

    async def commit(self, file_id: str, file: IO[bytes], manifest: Mapping[str, Any]) -> None:
        """Make the file durable, and then its manifest. Raises Transient or Permanent."""
        await asyncio.to_thread(self._commit, file_id, file, manifest)

    async def list_manifests(self) -> list[Mapping[str, Any]]:
        """Return the manifests of all complete files, newest first. Raises Transient or Permanent."""
        return await asyncio.to_thread(self._list_manifests)

    async def read_manifest(self, file_id: str) -> Mapping[str, Any] | None:
        """Return one manifest; None when there is none."""
        if not FILE_ID.match(file_id):
            return None
        return await asyncio.to_thread(self._read_manifest, self._folder / f"{file_id}{MANIFEST_SUFFIX}")

    async def open(self, file_id: str) -> IO[bytes]:
        """Open a complete file, to be read in threads and closed. Raises Permanent(not_found)."""
        return await asyncio.to_thread(self._open, self._path(file_id, SUFFIX))

    async def remove(self, file_id: str) -> bool:
        """Delete a file; return whether it existed."""
        if not FILE_ID.match(file_id):
            return False
        return await asyncio.to_thread(self._remove, file_id)

    # --- in threads --------------------------------------------------------------------------------------------------

    def _path(self, file_id: str, suffix: str) -> Path:
        if not FILE_ID.match(file_id):
            raise Permanent(
                f"state file {file_id[:80]!r}: expected snap_<milliseconds>_<8 or 32 hex digits>", kind="invalid"
            )
        return self._folder / f"{file_id}{suffix}"

    def _create(self, path: Path) -> IO[bytes]:
        try:
            make_folders(self._folder)
            return create_file(path)
        except OSError as error:
            raise _to_connector_error(f"create {path}", error) from error

    def _commit(self, file_id: str, file: IO[bytes], manifest: Mapping[str, Any]) -> None:
        place = self._path(file_id, MANIFEST_SUFFIX)
        partial = place.with_name(place.name + PARTIAL_SUFFIX)
        try:
            file.flush()
            os.fsync(file.fileno())
            with create_file(partial) as beside:
                beside.write(json.dumps(manifest, sort_keys=True).encode())
                beside.flush()
                os.fsync(beside.fileno())
            partial.replace(place)
            folder = os.open(self._folder, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise _to_connector_error(f"write {place}", error) from error

    def _list_manifests(self) -> list[Mapping[str, Any]]:
        try:
            places = sorted(self._folder.glob(f"snap_*{MANIFEST_SUFFIX}"), reverse=True)
        except OSError as error:
            raise _to_connector_error(f"list {self._folder}", error) from error
        return [manifest for place in places if (manifest := self._read_manifest(place)) is not None]

    def _read_manifest(self, path: Path) -> Mapping[str, Any] | None:
        try:
            manifest = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None  # removed meanwhile
        except OSError as error:
            raise _to_connector_error(f"read {path}", error) from error
        except ValueError as error:
            raise Permanent(f"{path} is not JSON ({error}): restore it, or delete it", kind="invalid") from error
        return manifest if isinstance(manifest, dict) else None

    def _open(self, path: Path) -> IO[bytes]:
        try:
            return path.open("rb")
        except FileNotFoundError as error:
            raise Permanent(f"{path} is gone, although its manifest was there", kind="not_found") from error
        except OSError as error:
            raise _to_connector_error(f"read {path}", error) from error

    def _remove(self, file_id: str) -> bool:
        manifest = self._path(file_id, MANIFEST_SUFFIX)
        try:
            was_there = manifest.exists()
            manifest.unlink(missing_ok=True)
            self._path(file_id, SUFFIX).unlink(missing_ok=True)
        except OSError as error:
            raise _to_connector_error(f"remove {manifest}", error) from error
        return was_there


def _to_connector_error(what: str, error: OSError) -> ConnectorError:
    text = f"{what}: {type(error).__name__}: {error.strerror}"
    if isinstance(error, PermissionError | NotADirectoryError | FileExistsError):
        return Permanent(f"{text}; the folder must be writable for this process", kind="forbidden")
    return Transient(text, kind="unavailable")
