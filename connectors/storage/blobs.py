"""The blob store: payloads over the inline limit, by their SHA-256.

FileBlobs keeps them in a folder as ab/cd/<sha256>, two levels so that no folder grows too large for the file system. A
blob is written to a temporary file, flushed, renamed, and its folder flushed: after `put` has returned it survives a
crash, and before that it is never visible under its name. Because the name is the content, writers need no lock: two of
them write the same bytes. `get` always verifies the hash; a corrupted file is an error, never a wrong result.

Errors are shown to clients, so they name the payload and the setting, never a folder of this machine.

All disk access runs in a thread. MemoryBlobs is the in-memory version for tests and for embedding loomlog. Not chosen:
Postgres large objects (the read models may be deleted and rebuilt, payloads may not).

Before: services/application/payloads.py, services/runtime. After: readers of the event that holds the reference.
"""

import asyncio
import hashlib
import os
import re
import secrets
from pathlib import Path

from loomlog.connectors.errors import ConnectorError, Permanent, Transient
from loomlog.connectors.storage.private_files import create_file, make_folders
from loomlog.schemas.generated.values import BlobRef

SHA256 = re.compile(r"[0-9a-f]{64}\Z")
TEMPORARY_PREFIX = "writing-"
"""Prefix of files left by a crash during a write; nothing refers to them and they may be deleted."""


class FileBlobs:
    """Blobs in a folder of this machine (protocol connectors.protocols.Blobs). The folder is created when missing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, data: bytes, media_type: str = "text/plain") -> BlobRef:
        return await asyncio.to_thread(self._put, data, media_type)

    async def get(self, ref: BlobRef) -> bytes:
        return await asyncio.to_thread(self._get, ref)

    async def delete(self, ref: BlobRef) -> None:
        await asyncio.to_thread(self._delete, ref)

    def _delete(self, ref: BlobRef) -> None:
        place = self.blob_path(ref.sha256)
        try:
            place.unlink(missing_ok=True)
        except OSError as error:
            raise _to_connector_error(f"delete blob {ref.sha256}", error) from error

    def blob_path(self, sha256: str) -> Path:
        """Return the path of a blob. Raises Permanent(invalid) for anything but 64 hex digits."""
        if not SHA256.match(sha256):
            raise Permanent(f"blob {sha256[:80]!r}: expected 64 lower-case hex digits", kind="invalid")
        return self._folder / sha256[:2] / sha256[2:4] / sha256

    def _put(self, data: bytes, media_type: str) -> BlobRef:
        ref = blob_ref(data, media_type)
        place = self.blob_path(ref.sha256)
        try:
            if not (place.is_file() and place.stat().st_size == len(data)):
                self._make_folders(place.parent)
                self._write(place, data)
            # Also for an existing blob: its writer may not have flushed the folder yet.
            _flush_folder(place.parent)
        except OSError as error:
            raise _to_connector_error(f"write blob {ref.sha256}", error) from error
        return ref

    def _write(self, path: Path, data: bytes) -> None:
        temporary = path.parent / f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"
        try:
            with create_file(temporary) as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    def _make_folders(self, folder: Path) -> None:
        for part in make_folders(folder):
            _flush_folder(part.parent)

    def _get(self, ref: BlobRef) -> bytes:
        place = self.blob_path(ref.sha256)
        try:
            data = place.read_bytes()
        except FileNotFoundError as error:
            raise Permanent(
                f"blob {ref.sha256} ({ref.size_bytes} bytes) is not in the folder of LOOMLOG_BLOB_FOLDER: restore it "
                "from a backup, or point the setting to the folder it was written to",
                kind="not_found",
            ) from error
        except OSError as error:
            raise _to_connector_error(f"read blob {ref.sha256}", error) from error
        return verify_blob(ref, data)


class MemoryBlobs:
    """Blobs in memory."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}

    async def put(self, data: bytes, media_type: str = "text/plain") -> BlobRef:
        ref = blob_ref(data, media_type)
        self.blobs[ref.sha256] = data
        return ref

    async def get(self, ref: BlobRef) -> bytes:
        data = self.blobs.get(ref.sha256)
        if data is None:
            raise Permanent(f"blob {ref.sha256} is not in memory", kind="not_found")
        return verify_blob(ref, data)

    async def delete(self, ref: BlobRef) -> None:
        self.blobs.pop(ref.sha256, None)


def blob_ref(data: bytes, media_type: str) -> BlobRef:
    """Return the reference of these bytes."""
    return BlobRef(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), media_type=media_type)


def verify_blob(ref: BlobRef, data: bytes) -> bytes:
    """Return the bytes if they match the reference. Raises Permanent(invalid)."""
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 != ref.sha256:
        raise Permanent(
            f"blob {ref.sha256}: its {len(data)} bytes hash to {sha256}; it was altered, restore it from a backup",
            kind="invalid",
        )
    return data


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _to_connector_error(what: str, error: OSError) -> ConnectorError:
    text = f"{what}: {type(error).__name__}: {error.strerror}"
    if isinstance(error, PermissionError | NotADirectoryError):
        return Permanent(
            f"{text}; the folder of LOOMLOG_BLOB_FOLDER must be writable for this process", kind="forbidden"
        )
    return Transient(text, kind="unavailable")
