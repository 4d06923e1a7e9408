"""What `http_request` sends, returns and raises, against a server on the loopback."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import subprocess
import sys
import traceback
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from journal import Content
from journal.effects import RequestFailed, RequestRefused, http_request
from tests.loopback import Answer, Server

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server().running() as running:
        yield running


async def refusal(method: str, url: str, **arguments: Any) -> RequestRefused | RequestFailed:
    with pytest.raises((RequestRefused, RequestFailed)) as raised:
        await http_request(method, url, **arguments)
    return raised.value


# --- what is sent -----------------------------------------------------------------------------


async def test_the_key_is_sent_as_it_is(server: Server) -> None:
    await http_request("post", server.url("/a?x=1"), json={"n": 1}, idempotency_key="run:3:0:abc")
    await http_request("PUT", server.url(), content="né", idempotency_key="k")
    (post, put) = server.requests
    assert (post.method, post.path, post.body) == ("POST", "/a?x=1", b'{"n":1}')
    assert post.headers["idempotency-key"] == "run:3:0:abc"
    assert post.headers["content-type"] == "application/json"
    assert (put.method, put.body) == ("PUT", "né".encode())


@pytest.mark.parametrize("path", ["/a?X-Sig=a%20b&flag", "/a?name=%E9", "/a?t=1:2;3/4"])
async def test_a_query_is_sent_as_it_is(path: str, server: Server) -> None:
    await http_request("GET", server.url(path))
    assert server.requests[0].path == path


@pytest.mark.parametrize("key", ["run:scope/né:1", "k" * 256, "two\nlines"])
async def test_a_key_that_no_header_takes_is_sent_as_its_digest(key: str, server: Server) -> None:
    for _ in range(2):
        await http_request("POST", server.url(), idempotency_key=key)
    first, second = (request.headers["idempotency-key"] for request in server.requests)
    assert first == second
    assert len(first) == 64


async def test_a_key_in_the_headers_is_the_callers(server: Server) -> None:
    mine = {"idempotency-key": "mine", "X-Other": "1"}
    await http_request("POST", server.url(), headers=mine, idempotency_key="k")
    await http_request("GET", server.url())
    assert server.requests[0].headers["idempotency-key"] == "mine"
    assert server.requests[0].headers["x-other"] == "1"
    assert "idempotency-key" not in server.requests[1].headers


async def test_params_are_added_to_the_query(server: Server) -> None:
    await http_request("GET", server.url("/find?a=1"), params={"q": "two words"})
    assert server.requests[0].path == "/find?a=1&q=two+words"


async def test_content_brings_its_media_type(server: Server) -> None:
    await http_request("PUT", server.url(), content=Content(b"\x89PNG", "image/png"))
    assert server.requests[0].body == b"\x89PNG"
    assert server.requests[0].headers["content-type"] == "image/png"


# --- what comes back --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("media_type", "body", "expected"),
    [
        ("application/json", b'{"a": [1, "\xc3\xa9"]}', {"a": [1, "é"]}),
        ("application/problem+json; charset=utf-8", b"null ", None),
        ("application/json", b"{broken", "{broken"),
        ("application/json", b"[NaN]", "[NaN]"),
        ("application/json", b"[18446744073709551616]", "[18446744073709551616]"),
        ("text/plain; charset=latin-1", b"\xe9", "é"),
        ("application/atom+xml", b"<a/>", "<a/>"),
        ("image/png", b"\x89PNG", Content(b"\x89PNG", "image/png")),
        ("", b"?", Content(b"?", "application/octet-stream")),
        ("nonsense", b"?", Content(b"?", "application/octet-stream")),
        ("application/json", b"", None),
    ],
)
async def test_a_body_is_what_its_media_type_says(
    media_type: str, body: bytes, expected: Any, server: Server
) -> None:
    headers = {"Content-Type": media_type} if media_type else {}
    server.answers.append(Answer(201, body, headers))
    answer = await http_request("GET", server.url())
    assert answer == {
        "status": 201,
        "headers": {"content-type": media_type} if media_type else {},
        "body": expected,
    }


async def test_headers_that_matter_are_kept_and_cookies_are_not(server: Server) -> None:
    headers = {"ETag": '"1"', "Set-Cookie": "session=1", "Location": "/b", "X-Request-Id": "7"}
    server.answers.append(Answer(302, b"", headers))
    answer = await http_request("GET", server.url())
    assert answer["status"] == 302
    assert answer["headers"] == {"etag": '"1"', "location": "/b", "x-request-id": "7"}
    assert len(server.requests) == 1


# --- what is raised ---------------------------------------------------------------------------


@pytest.mark.parametrize("status", [400, 401, 404, 409, 422, 499])
async def test_4xx_is_refused_for_good(status: int, server: Server) -> None:
    server.answers.append(Answer(status, b"why"))
    error = await refusal("GET", server.url())
    assert isinstance(error, RequestRefused)
    assert error.status == status
    assert not http_request.may_retry(error, 1)


@pytest.mark.parametrize("status", [408, 425, 429, 500, 502, 503, 599])
async def test_what_may_go_well_another_time_is_told_apart(status: int, server: Server) -> None:
    server.answers.append(Answer(status, b"why", {"Retry-After": "7"}))
    error = await refusal("POST", server.url())
    assert isinstance(error, RequestFailed)
    assert (error.status, error.retry_after_s) == (status, 7.0)
    assert http_request.may_retry(error, 4)
    assert not http_request.may_retry(error, 5)
    assert http_request.backoff_s(1, error) == 7.0


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("0", 0.0, 0.0),
        ("100000", 300.0, 300.0),
        (formatdate(4102444800, usegmt=True), 300.0, 300.0),
        (formatdate(0, usegmt=True), 0.0, 0.0),
    ],
)
async def test_retry_after_is_seconds_or_a_date(
    text: str, least: float, most: float, server: Server
) -> None:
    server.answers.append(Answer(503, b"", {"Retry-After": text}))
    error = await refusal("GET", server.url())
    assert isinstance(error, RequestFailed)
    assert error.retry_after_s is not None
    assert least <= error.retry_after_s <= most


@pytest.mark.parametrize("text", ["soon", "Fri, 31 Dec 99999 23:59:59 GMT"])
async def test_a_retry_after_that_says_nothing_leaves_the_backoff(
    text: str, server: Server
) -> None:
    server.answers.append(Answer(503, b"", {"Retry-After": text}))
    error = await refusal("GET", server.url())
    assert getattr(error, "retry_after_s", 1) is None
    assert 0.5 <= http_request.backoff_s(1, error) <= 0.75


async def test_no_connection_and_no_answer_may_be_tried_again(server: Server) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
        error = await refusal("GET", f"http://127.0.0.1:{port}/x")
        assert str(error) == f"GET http://127.0.0.1:{port}: ConnectError"
    server.answers += [Answer(drops=True), Answer(waits=True)]
    dropped = await refusal("GET", server.url())
    late = await refusal("GET", server.url(), timeout=0.05)
    assert str(dropped) == f"GET {server.url('')}: RemoteProtocolError"
    assert str(late) == f"GET {server.url('')}: no answer within 0.05 s"
    for failed in (error, dropped, late):
        assert isinstance(failed, RequestFailed)
        assert failed.status is None
        assert http_request.may_retry(failed, 1)


@pytest.mark.parametrize(
    ("method", "url", "secret"),
    [
        ("GET", "ftp://user:hunter2@example.org", ""),
        ("GET", "http://user:hunter2@host:port/", ""),
        ("GET", "/hunter2", ""),
        ("GET hunter2", "http://127.0.0.1/", ""),
        ("GET", "", "hunter2\n"),
        ("GET", "", "hunter2é"),
    ],
)
async def test_what_is_no_request_is_a_value_error_of_one_line(
    method: str, url: str, secret: str, server: Server
) -> None:
    with pytest.raises(
        ValueError, match=r"^(http_request: the|GET http:.*: a header is)"
    ) as raised:
        await http_request(method, url or server.url(), headers={"Authorization": secret})
    assert "\n" not in str(raised.value)
    assert "hunter2" not in "".join(traceback.format_exception(raised.value))
    assert not http_request.may_retry(raised.value, 1)
    assert not server.requests


# --- secrets ----------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [Answer(500), Answer(403), Answer(drops=True)])
async def test_no_secret_is_in_an_error_or_a_log(
    answer: Answer, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.answers += [Answer(), answer]
    # Tracebacks show lines of this file, so the secrets are made up here.
    password, token = "hunter" + "2", "hunter" + "3"
    url, headers = server.url("/x", f"user:{password}@"), {"X-Api-Key": f"Bearer {token}"}
    await http_request("GET", url, headers=headers)
    error = await refusal("GET", url, headers=headers)
    for request in server.requests:
        assert request.headers["authorization"] == "Basic dXNlcjpodW50ZXIy"
        assert request.headers["x-api-key"] == "Bearer hunter3"
    said = "".join(traceback.format_exception(error)) + caplog.text
    assert str(error).startswith(f"GET {server.url('')}: ")
    assert "HTTP Request: GET" in said
    for secret in (password, token, "dXNlcjpodW50ZXIy"):
        assert secret not in said


# --- without httpx ----------------------------------------------------------------------------


def test_httpx_is_imported_when_it_is_needed_and_named_where_it_is_missing() -> None:
    program = (
        "import sys, asyncio\n"
        "from journal.effects import http_request\n"
        "assert 'httpx' not in sys.modules\n"
        "sys.modules['httpx'] = None\n"
        "asyncio.run(http_request('GET', 'http://127.0.0.1/'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.stderr.splitlines()[-1] == (
        "journal.errors.UsageError: http_request needs httpx; pip install 'step-journal[http]'"
    )


async def test_a_request_that_is_cancelled_ends(server: Server) -> None:
    server.answers.append(Answer(waits=True))
    asking = asyncio.ensure_future(http_request("GET", server.url()))
    await asyncio.to_thread(server.arrived.wait)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
