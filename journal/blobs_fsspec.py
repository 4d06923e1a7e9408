"""A blob store at any URL that fsspec knows: `s3://…`, `gs://…`, `memory://…`, `sftp://…`.

Named and checked like the files of a directory (blobs). fsspec is the optional extra `blobs`;
nothing else imports it.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from typing import Any

from journal.blobs import checked, missing, reference
from journal.errors import LogUnavailable, UsageError
from journal.values import BlobRef

_WHOLE = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "memory"}
"""File systems on which an object appears whole or not at all. On others a blob is written
under another name and moved, which is a rename where the file system has one."""


class UrlBlobs:
    """A blob store below `url`. Raises `UsageError` where fsspec, or the package that it needs
    for this kind of URL, is not installed."""

    def __init__(self, url: str) -> None:
        # A URL may hold credentials; what is shown does not.
        self._shown = re.sub(r"://[^/@]*@", "://", url.partition("?")[0])
        scheme = url.partition("://")[0]
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise UsageError(
                f"blobs: {scheme}:// needs fsspec; pip install 'step-journal[blobs]'"
            ) from None
        try:
            # Another process may have written since a listing was kept.
            fs, root = url_to_fs(url, use_listings_cache=False)
        except ImportError as error:
            raise UsageError(f"blobs: {scheme}:// needs one package more: {error}") from None
        except ValueError:
            raise UsageError(f"blobs: fsspec knows no {scheme}://; name another URL") from None
        self._fs: Any = fs
        self._root = str(root).rstrip("/")
        kinds = {fs.protocol} if isinstance(fs.protocol, str) else set(fs.protocol)
        self._appears_whole = bool(kinds & _WHOLE)

    def __str__(self) -> str:
        return self._shown

    def _path(self, sha256: str) -> str:
        return f"{self._root}/{sha256[:2]}/{sha256}"

    def put(self, data: bytes, media_type: str = "application/json") -> BlobRef:
        ref = reference(data, media_type)
        path = self._path(ref.sha256)
        try:
            if not self._has(path, ref.size):
                self._write(path, data)
        except Exception as error:  # each file system raises errors of its own library
            raise LogUnavailable(f"{self}: cannot store a payload: {_reason(error)}") from error
        return ref

    def _has(self, path: str, size: int) -> bool:
        try:
            return bool(self._fs.info(path)["size"] == size)
        except FileNotFoundError:
            return False

    def _write(self, path: str, data: bytes) -> None:
        if self._appears_whole:
            # Nor do these have folders: to ask for one would make the bucket where its name is
            # mistyped.
            self._fs.pipe_file(path, data)
            return
        folder = path.rpartition("/")[0]
        self._fs.makedirs(folder, exist_ok=True)
        partial = f"{folder}/.partial-{uuid.uuid4().hex}"
        try:
            self._fs.pipe_file(partial, data)
            self._fs.mv(partial, path)
        except BaseException:
            with contextlib.suppress(Exception):
                self._fs.rm_file(partial)
            raise

    def get(self, ref: BlobRef) -> bytes:
        try:
            data = self._fs.cat_file(self._path(ref.sha256))
        except FileNotFoundError:
            raise missing(self, ref) from None
        except Exception as error:  # as above
            raise LogUnavailable(f"{self}: cannot read a payload: {_reason(error)}") from error
        return checked(self, ref, bytes(data))


_WORDS: dict[type[Exception], str] = {
    FileNotFoundError: "there is no such bucket; make it first",
    PermissionError: "permission denied; check the credentials",
}


def _reason(error: Exception) -> str:
    """No more than what is safe to show: a library's own text may hold a signed URL."""
    kind = type(error)
    return getattr(error, "strerror", None) or _WORDS.get(kind, kind.__name__)
