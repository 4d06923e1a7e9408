"""Blob stores: a directory, and a URL of fsspec; what is put twice, gone, or changed."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.implementations.memory import MemoryFileSystem

from journal.blobs import BlobStore, DirectoryBlobs, blob_store
from journal.blobs_fsspec import UrlBlobs
from journal.errors import BlobAltered, BlobMissing, LogUnavailable, UsageError
from journal.values import BlobRef

DATA = b"\x00\xff" * 40


class Elsewhere(LocalFileSystem):  # type: ignore[misc]
    """A file system that is not known to show an object whole or not at all, and that counts."""

    protocol = "elsewhere"
    written: list[str] = []  # noqa: RUF012 - fsspec makes one instance of it
    broken = False

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        self.written.append(path)
        super().pipe_file(path, value[: len(value) // 2] if self.broken else value, **kwargs)
        if self.broken:
            raise RuntimeError("GET https://host/?signature=secret failed")


class Buckets(MemoryFileSystem):  # type: ignore[misc]
    """An object store as s3fs shows one: it has no folders but the buckets, and makes those."""

    protocol = "oci"
    store: dict[str, Any] = {}  # noqa: RUF012 - fsspec makes one instance of it
    pseudo_dirs = ["", "/runs"]  # noqa: RUF012

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("oci://").strip("/")

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.pseudo_dirs.append("/" + path.split("/")[1])

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        if "/" + path.split("/")[1] not in self.pseudo_dirs:
            raise FileNotFoundError("The specified bucket does not exist")
        super().pipe_file(path, value, mode, **kwargs)


fsspec.register_implementation("elsewhere", Elsewhere, clobber=True)
fsspec.register_implementation("oci", Buckets, clobber=True)
fsspec.register_implementation("bucket", "no_such_package.Bucket", errtxt="Install bucketfs")


@pytest.fixture(params=["directory", "file", "memory", "elsewhere"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {
        "directory": f"{tmp_path}/a b",
        "file": f"file://{tmp_path}/a%20b",
        "memory": f"memory://{uuid.uuid4().hex}/blobs/",
        "elsewhere": f"elsewhere://{tmp_path}/a b",
    }[request.param]


@pytest.fixture
def store(url: str) -> BlobStore:
    return blob_store(url)


@pytest.fixture
def change(url: str, tmp_path: Path) -> Callable[[BlobRef, bytes | None], None]:
    """Puts other bytes in a blob's place, or takes it away."""

    def change(ref: BlobRef, data: bytes | None) -> None:
        place = url.rstrip("/") if url.startswith("memory") else f"{tmp_path}/a b"
        fs, root = fsspec.core.url_to_fs(place)
        path = f"{root}/{ref.sha256[:2]}/{ref.sha256}"
        assert fs.exists(path)
        fs.rm_file(path) if data is None else fs.pipe_file(path, data)

    return change


def test_what_was_put_comes_back_to_another_process_too(store: BlobStore, url: str) -> None:
    ref = store.put(DATA, "image/png")
    assert (ref.size, ref.media_type) == (80, "image/png")
    assert store.get(ref) == blob_store(url).get(ref) == DATA
    assert store.get(store.put(b"")) == b""


def test_one_that_is_gone_is_named(
    store: BlobStore, change: Callable[[BlobRef, bytes | None], None]
) -> None:
    ref = store.put(DATA)
    change(ref, None)
    with pytest.raises(BlobMissing, match=f"{ref.sha256} .*80 bytes.* is not there; point"):
        store.get(ref)
    store.put(DATA)
    assert store.get(ref) == DATA


@pytest.mark.parametrize(
    ("data", "why"), [(b"", "has 0 bytes, not 80"), (DATA[::-1], "is not what was written")]
)
def test_one_that_was_altered_is_named(
    store: BlobStore,
    change: Callable[[BlobRef, bytes | None], None],
    data: bytes,
    why: str,
) -> None:
    ref = store.put(DATA)
    change(ref, data)
    with pytest.raises(BlobAltered, match=f"{ref.sha256} {why}"):
        store.get(ref)


def test_one_cut_short_is_written_again(
    store: BlobStore, change: Callable[[BlobRef, bytes | None], None]
) -> None:
    ref = store.put(DATA)
    change(ref, DATA[:7])
    assert store.get(store.put(DATA)) == DATA


def test_what_is_there_is_not_written_again(tmp_path: Path) -> None:
    store = UrlBlobs(f"elsewhere://{tmp_path}/blobs")
    before = len(Elsewhere.written)
    ref = store.put(DATA)
    assert store.put(DATA, "image/png").sha256 == ref.sha256
    assert len(Elsewhere.written) == before + 1
    directory = DirectoryBlobs(tmp_path / "blobs")
    path = tmp_path / "blobs" / ref.sha256[:2] / ref.sha256
    inode = path.stat().st_ino
    directory.put(DATA)
    assert path.stat().st_ino == inode


def test_a_write_that_fails_leaves_nothing_and_shows_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Elsewhere, "broken", True)
    store = UrlBlobs(f"elsewhere://{tmp_path}/blobs")
    with pytest.raises(LogUnavailable) as raised:
        store.put(DATA)
    assert str(raised.value) == f"{store}: cannot store a payload: RuntimeError"
    assert [p for p in (tmp_path / "blobs").rglob("*") if p.is_file()] == []


def test_a_bucket_is_never_made() -> None:
    store = UrlBlobs("oci://runs/blobs")
    assert store.get(store.put(DATA)) == DATA
    mistyped = UrlBlobs("oci://rnus/blobs")
    for _ in range(2):
        with pytest.raises(LogUnavailable, match="no such bucket; make it first"):
            mistyped.put(DATA)


def test_credentials_in_a_url_are_not_shown() -> None:
    store = UrlBlobs("memory://key:secret@bucket/x?token=secret")
    assert str(store) == "memory://bucket/x"


def test_a_store_of_ones_own_is_used_as_it_is(tmp_path: Path) -> None:
    own = DirectoryBlobs(tmp_path)
    assert blob_store(own) is own


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("nonsense://x", "fsspec knows no nonsense://; name another URL"),
        ("bucket://x", "bucket:// needs one package more: Install bucketfs"),
        ("file://host/x", "names a host; write file:///path"),
    ],
)
def test_a_url_that_cannot_be_used_is_one_line(url: str, why: str) -> None:
    with pytest.raises(UsageError) as raised:
        blob_store(url)
    assert why in str(raised.value)
    assert "\n" not in str(raised.value)


def test_without_fsspec_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['fsspec'] = None; import journal, journal.errors\n"
        "journal.connect('x.db', blobs='some/folder')\n"
        "try: journal.connect('x.db', blobs='s3://key:secret@bucket/x')\n"
        "except journal.errors.UsageError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (
        "blobs: s3:// needs fsspec; pip install 'step-journal[blobs]'\n",
        "",
    )
