"""Large values and contents from the agent's side, in a directory and on a URL: they come back
whole, to a resumption as well, and a blob that is gone or altered has an error of its own."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from pathlib import Path
from typing import Any

import fsspec
import pytest

import journal
from journal import Content, Decision, ToolCall
from journal.errors import BlobAltered, BlobMissing
from tests.commands import run

MANY = 50 * 1024 * 1024


@pytest.fixture(params=["directory", "memory"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "b") if request.param == "directory" else f"memory://{uuid.uuid4().hex}"


def files(blobs: str) -> list[str]:
    fs, root = fsspec.core.url_to_fs(blobs)
    return [str(path) for path in fs.find(root)]


async def test_fifty_megabytes_come_back_once_written(tmp_path: Path, blobs: str) -> None:
    picture = Content(hashlib.sha256(b"seed").digest() * (MANY // 32), "image/png")
    text = "0123456789abcdef" * (MANY // 16)
    runs = []

    async def shoot() -> Any:
        runs.append(1)
        return picture

    for _ in range(2):
        async with (
            journal.connect(tmp_path / "j.db", blobs=blobs) as j,
            j.task("t", "look") as task,
        ):
            assert await task.run(shoot) == picture
            if not task.state.results:
                await task.set_result("text", text)
    assert runs == [1]
    async with journal.connect(tmp_path / "j.db", blobs=blobs) as j:
        async with j.task("t") as task:
            assert await task.run(shoot) == picture
            await task.complete([picture, "same bytes, no file more"])
        state = await j.state("t")
        assert journal.Task(state, None, j.blobs, None, j).final_answer[0] == picture
    sizes = sorted(fsspec.core.url_to_fs(blobs)[0].size(path) for path in files(blobs))
    assert sizes == [MANY, MANY + 2]
    assert (tmp_path / "j.db").stat().st_size < 1_000_000


async def test_contents_stand_in_arguments_results_messages_and_answers(
    tmp_path: Path, blobs: str
) -> None:
    small, large = Content(b"s", "image/gif"), Content(b"L" * 300_000, "image/png")
    url = tmp_path / "j.db"
    async with journal.connect(url, blobs=blobs) as j, j.task("t", "look") as task:
        await task.receive(["see", small, large])
        async with task.step() as step:
            asked = Decision(content=[large], tool_calls=[ToolCall("crop", {"image": large}, "c")])
            reply = await step.decide(lambda: asked)
            assert reply.content == [large]
            assert await step.call(crop, **reply.tool_calls[0].arguments) == [small, large]
    async with journal.connect(url, blobs=blobs) as j, j.task("t") as task:
        await task.record_step(1, asked, [large])
        (shown,) = [m["content"] for m in task.messages("anthropic") if m["content"][0] == SEE]
        assert shown[2]["source"]["data"] == large.base64
        await task.complete({"best": large})
        assert task.final_answer == {"best": large}
    assert len(files(blobs)) == 1


SEE = {"type": "text", "text": "see"}


def crop(image: Content) -> Any:
    return [Content(b"s", "image/gif"), image]


async def test_a_blob_that_is_gone_or_altered_has_its_own_error(tmp_path: Path, blobs: str) -> None:
    url = tmp_path / "j.db"
    async with journal.connect(url, blobs=blobs) as j, j.task("t", "look") as task:
        await task.run(crop, Content(b"L" * 300_000, "image/png"))
    (path,) = files(blobs)
    fs, _ = fsspec.core.url_to_fs(blobs)
    for data, error in ((b"l" * 300_000, BlobAltered), (None, BlobMissing)):
        fs.rm_file(path) if data is None else fs.pipe_file(path, data)
        async with journal.connect(url, blobs=blobs) as j, j.task("t") as task:
            with pytest.raises(error):
                await task.run(crop, Content(b"L" * 300_000, "image/png"))


async def test_a_run_is_shown_but_for_a_payload_that_is_lost(tmp_path: Path) -> None:
    url = tmp_path / "j.db"
    async with journal.connect(url, blobs=tmp_path / "b") as j, j.task("t", "look") as task:
        await task.record_step(0, "first")
        await task.record_step(1, "x" * 300_000)
        await task.record_step(2, "last")
    (path,) = (p for p in (tmp_path / "b").rglob("*") if p.is_file())
    path.unlink()
    done = await asyncio.to_thread(
        run, "show", "t", "--log", str(url), JOURNAL_BLOBS=str(tmp_path / "b")
    )
    assert done.returncode == 1
    first, lost, last = (done.stdout.index(text) for text in ("first", "(lost: 300,002", "last"))
    assert first < lost < last
    assert done.stderr.count("\n") == 1
    assert "is not there; point" in done.stderr


async def test_the_environment_names_a_store(
    tmp_path: Path, blobs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOURNAL_BLOBS", blobs)
    async with journal.connect(tmp_path / "j.db") as j, j.task("t", "d") as task:
        await task.complete("x" * 300_000)
    assert len(files(blobs)) == 1
