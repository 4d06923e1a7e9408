"""Where large payloads live: files named by the SHA-256 of what they hold, in a directory here;
elsewhere they are the same files (blobs_fsspec), or memory.

Content-addressed, so that writing twice is writing once and nothing is ever overwritten. Knows
bytes and hashes; knows no events.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from journal.errors import BlobAltered, BlobMissing, LogUnavailable, UsageError
from journal.values import BlobRef

INLINE_BYTES = 256 * 1024
"""A payload of more bytes than this goes to the blob store."""


class BlobStore(Protocol):
    """Two calls, made on a thread of their own; both may block."""

    def put(self, data: bytes, media_type: str = "application/json") -> BlobRef:
        """Store, durably, and name it. Raises `LogUnavailable` where that cannot be done."""

    def get(self, ref: BlobRef) -> bytes:
        """What was stored, checked. Raises `BlobMissing`, `BlobAltered`, or `LogUnavailable`
        where the store cannot be read now."""


def blob_store(where: str | os.PathLike[str] | BlobStore) -> BlobStore:
    """The store at a directory or at an fsspec URL, or the one given. Nothing is made or read
    yet. Raises `UsageError` where what the URL needs is not installed."""
    if not isinstance(where, str | os.PathLike):
        return where
    text = os.fspath(where)
    if text.startswith("file://"):
        url = urlsplit(text)
        if url.netloc not in ("", "localhost"):
            raise UsageError(f"blobs: {text} names a host; write file:///path, or a path")
        return DirectoryBlobs(unquote(url.path))
    if "://" in text:
        from journal.blobs_fsspec import UrlBlobs

        return UrlBlobs(text)
    return DirectoryBlobs(text)


def reference(data: bytes, media_type: str) -> BlobRef:
    """What names these bytes."""
    return BlobRef(hashlib.sha256(data).hexdigest(), len(data), media_type)


def missing(store: object, ref: BlobRef) -> BlobMissing:
    """The error for a blob that is not in `store`."""
    return BlobMissing(
        f"{store}: the payload {ref.sha256} ({ref.size} bytes) is not there; "
        f"point blobs= or JOURNAL_BLOBS at the store it was written to"
    )


def checked(store: object, ref: BlobRef, data: bytes) -> bytes:
    """The bytes, if they are those that `ref` names. Raises `BlobAltered`."""
    if len(data) != ref.size:
        raise BlobAltered(
            f"{store}: the payload {ref.sha256} has {len(data)} bytes, not {ref.size}; "
            f"restore it from a copy"
        )
    if hashlib.sha256(data).hexdigest() != ref.sha256:
        raise BlobAltered(
            f"{store}: the payload {ref.sha256} is not what was written; restore it from a copy"
        )
    return data


class DirectoryBlobs:
    """A blob store in a local directory, made when the first blob is written."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(root)

    def _path(self, sha256: str) -> Path:
        return self.root / sha256[:2] / sha256

    def put(self, data: bytes, media_type: str = "application/json") -> BlobRef:
        ref = reference(data, media_type)
        path = self._path(ref.sha256)
        if path.exists() and path.stat().st_size == len(data):
            return ref
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, partial = tempfile.mkstemp(dir=path.parent, prefix=".partial-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(partial, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(partial)
                raise
            # The name must outlive a power cut as surely as the bytes.
            folder = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            reason = error.strerror or str(error)
            raise LogUnavailable(f"{self.root}: cannot store a payload: {reason}") from error
        return ref

    def get(self, ref: BlobRef) -> bytes:
        try:
            data = self._path(ref.sha256).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise missing(self.root, ref) from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise LogUnavailable(f"{self.root}: cannot read a payload: {reason}") from error
        return checked(self.root, ref, data)


class MemoryBlobs:
    """A blob store in memory."""

    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}

    def put(self, data: bytes, media_type: str = "application/json") -> BlobRef:
        ref = BlobRef(hashlib.sha256(data).hexdigest(), len(data), media_type)
        self._data[ref.sha256] = bytes(data)
        return ref

    def get(self, ref: BlobRef) -> bytes:
        try:
            return self._data[ref.sha256]
        except KeyError:
            raise BlobMissing(f"the payload {ref.sha256} is not in memory") from None
