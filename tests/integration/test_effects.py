"""The ready effects as an agent's tools: their keys, their policy, what is recorded of them.

A crash is an exception that is no `Exception`, or a second connection to the same journal.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import journal
from journal import Content, Decision, ToolCall, redact, sync
from journal.effects import RequestFailed, append_line, http_request, write_file
from journal.errors import ToolError, UsageError
from journal.tools import Tool, tool
from tests.loopback import Answer, Server

Connect = Callable[[], journal.Journal]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server().running() as running:
        yield running


class Crash(BaseException):
    """What stands for the end of a process."""


def lost(used: Tool) -> Tool:
    """The tool in a process that ends when it has run, before anybody hears of it."""

    def dies(function: Callable[..., Any]) -> Callable[..., Any]:
        async def called(*args: Any, **kwargs: Any) -> Any:
            if inspect.iscoroutinefunction(function):
                await function(*args, **kwargs)
            else:
                function(*args, **kwargs)
            raise Crash

        called.__qualname__ = function.__qualname__
        return called

    return used.running(dies)


async def in_step(connect: Connect, used: Tool, **arguments: Any) -> Any:
    async with connect() as j, j.task("t", "d") as task, task.step() as step:
        await step.decide(lambda: Decision("do", [ToolCall(used.name, arguments)]))
        return await step.call(used, **arguments)


async def in_run(connect: Connect, used: Tool, **arguments: Any) -> Any:
    async with connect() as j, j.task("t", "d") as task:
        return await task.run(used, **arguments)


@pytest.mark.parametrize("way", [in_step, in_run])
async def test_what_was_done_before_a_crash_is_not_done_twice(
    way: Callable[..., Any], connect: Connect, server: Server, tmp_path: Path
) -> None:
    path = tmp_path / "log"
    calls = [
        (append_line, {"path": str(path), "line": "once"}),
        (write_file, {"path": str(tmp_path / "report"), "content": "né"}),
        (http_request, {"method": "POST", "url": server.url(), "json": {"n": 1}}),
    ]
    for used, arguments in calls:
        here = connect if used is append_line else elsewhere(tmp_path, used.name)
        with pytest.raises(Crash):
            await way(here, lost(used), **arguments)
        assert await way(here, used, **arguments)
    assert path.read_text() == "once\n"
    assert (tmp_path / "report").read_text() == "né"
    first, second = (request.headers["idempotency-key"] for request in server.requests)
    assert first == second


def elsewhere(folder: Path, name: str) -> Connect:
    return lambda: journal.connect(str(folder / f"{name}.db"), create=True)


async def test_two_calls_of_one_task_have_keys_of_their_own(
    connect: Connect, tmp_path: Path
) -> None:
    path = str(tmp_path / "log")
    for _ in range(2):
        async with connect() as j, j.task("t", "d") as task:
            for _ in range(2):
                await task.run(append_line, path, "twice")
            await task.options(key="k").run(append_line, path, "by its key")
    assert (tmp_path / "log").read_text() == "twice\n" * 2 + "by its key\n"


async def test_a_key_that_is_given_is_the_one_that_is_sent(
    connect: Connect, server: Server
) -> None:
    async with connect() as j, j.task("t", "d") as task:
        await task.run(http_request, "POST", server.url(), idempotency_key="mine")
        async with task.step() as step:
            await step.options(key="order-4711").call(http_request, "POST", server.url())
    assert [r.headers["idempotency-key"] for r in server.requests] == ["mine", "order-4711"]


async def test_bytes_are_written_and_come_back(
    connect: Connect, server: Server, tmp_path: Path
) -> None:
    picture = Content(b"\x89PNG", "image/png")
    server.answers.append(Answer(200, picture.data, {"Content-Type": picture.media_type}))
    for _ in range(2):
        async with connect() as j, j.task("t", "d") as task:
            got = await task.run(http_request, "GET", server.url())
            assert got["body"] == picture
            await task.run(write_file, str(tmp_path / "picture"), got["body"])
    assert (tmp_path / "picture").read_bytes() == picture.data
    assert len(server.requests) == 1


def test_they_are_tools_without_await(server: Server, tmp_path: Path) -> None:
    server.answers.append(Answer(503, b"", {"Retry-After": "0"}))
    path = str(tmp_path / "log")
    for _ in range(2):
        with sync.connect(str(tmp_path / "journal.db")) as j, j.task("t", "d") as task:
            assert task.run(http_request, "GET", server.url())["status"] == 200
            assert task.run(append_line, path, "run")["size"] == 4
            if task.completed(0) is None:
                with task.step() as step:
                    assert step.call(http_request, "GET", server.url())["status"] == 200
                    step.call(append_line, path=path, line="step")
                    step.call(write_file, path=str(tmp_path / "report"), content="x")
    assert Path(path).read_text() == "run\nstep\n"
    assert len(server.requests) == 3


# --- failures ---------------------------------------------------------------------------------


async def failed(connect: Connect) -> list[bytes]:
    async with connect() as j:
        return [bytes(e.body) async for _, e in j.events("t") if e.type == "ToolCallFailed"]


async def test_a_busy_server_is_asked_again_under_the_same_key(
    connect: Connect, server: Server
) -> None:
    server.answers += [Answer(503, b"", {"Retry-After": "0"}), Answer(429), Answer(drops=True)]
    quick = tool(name="http_request", retries=3, retry_on=RequestFailed, backoff=0.0)
    used = quick(http_request.function)
    answer = await in_step(connect, used, method="POST", url=server.url())
    assert answer["status"] == 200
    assert len({request.headers["idempotency-key"] for request in server.requests}) == 1
    assert len(await failed(connect)) == 3


@pytest.mark.parametrize("way", [in_step, in_run])
async def test_a_retry_waits_as_long_as_the_error_asks(
    way: Callable[..., Any], connect: Connect
) -> None:
    times = []

    @tool(retries=1, backoff=0.0)
    async def busy() -> None:
        times.append(asyncio.get_running_loop().time())
        if len(times) == 1:
            raise RequestFailed("busy", 503, 0.1)

    await way(connect, busy)
    first, second = times
    assert second - first >= 0.1


async def test_a_refusal_is_final(connect: Connect, server: Server) -> None:
    server.answers.append(Answer(404))
    with pytest.raises(ToolError, match=r"^GET http://127\.0\.0\.1:\d+: 404 Not Found$") as raised:
        await in_step(connect, http_request, method="GET", url=server.url("/a?token=hunter2"))
    assert raised.value.error_type == "journal.effects.http.RequestRefused"
    assert len(server.requests) == 1
    (body,) = await failed(connect)
    assert b"hunter2" not in body


@pytest.mark.parametrize("way", [in_step, in_run])
async def test_an_error_of_the_journals_is_not_tried_again(
    way: Callable[..., Any], connect: Connect
) -> None:
    runs = 0

    @tool(retries=3, backoff=0.0)
    def not_installed() -> None:
        nonlocal runs
        runs += 1
        raise UsageError("it needs a package")

    with pytest.raises(UsageError):
        await way(connect, not_installed)
    assert runs == 1


async def test_a_line_that_is_none_is_the_tools_error(connect: Connect, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="line break"):
        await in_step(connect, append_line, path=str(tmp_path / "log"), line="a\nb")
    assert len(await failed(connect)) == 1


async def test_a_token_of_a_tool_of_ones_own_is_in_no_event(
    connect: Connect, server: Server
) -> None:
    @tool(retries=4, retry_on=RequestFailed)
    async def order(sku: str, idempotency_key: str) -> Any:
        headers = {"Authorization": "Bearer hunter2"}
        return await http_request(
            "POST", server.url(), json=sku, headers=headers, idempotency_key=idempotency_key
        )

    await in_step(connect, order, sku="a")
    assert server.requests[0].headers["authorization"] == "Bearer hunter2"
    assert server.requests[0].headers["idempotency-key"]
    async with connect() as j:
        assert not [e async for _, e in j.events("t") if b"hunter2" in bytes(e.body)]


async def test_redaction_takes_a_token_out_of_recorded_arguments(
    server: Server, tmp_path: Path
) -> None:
    file = str(tmp_path / "journal.db")
    url, headers = server.url("/", "user:hunter2@"), {"X-Token": "Bearer hunter2hunter2"}
    async with (
        journal.connect(file, redact=redact.patterns()) as j,
        j.task("t", "d") as task,
        task.step() as step,
    ):
        await step.call(http_request, "GET", url, headers=headers)
    async with journal.connect(file) as j:
        bodies = [bytes(e.body) async for _, e in j.events("t")]
    assert b"http_request" in b"".join(bodies)
    assert b"hunter2" not in b"".join(bodies)
