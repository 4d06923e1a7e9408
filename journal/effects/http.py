"""An HTTP request with an `Idempotency-Key` header, and which of its failures may be tried again.

Knows HTTP by way of httpx, which is the optional extra `http`; nothing else imports it. Its errors
are no errors of the journal, so that they are recorded as the tool's.
"""

from __future__ import annotations

import asyncio
import email.utils
import functools
import hashlib
import json as jsons
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from journal.content import Content
from journal.errors import UsageError, ValueRefused
from journal.tools import tool
from journal.values import encode_value

if TYPE_CHECKING:
    import ssl

    import httpx

TRANSIENT = (408, 425, 429)
"""What may be tried again of 4xx."""
KEPT_HEADERS = (
    "content-type",
    "etag",
    "last-modified",
    "link",
    "location",
    "retry-after",
    "x-request-id",
)
RETRY_AFTER_MAX_S = 300.0
"""A server that asks for more patience is asked again after this."""


class RequestRefused(Exception):
    """The server will not do it: a status of 4xx that no repetition changes."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class RequestFailed(Exception):
    """It may go well another time: 5xx, 408, 425 or 429, no connection, no answer in time.

    `status` is None where no answer came; `retry_after_s` is what the server asked for.
    """

    def __init__(
        self, message: str, status: int | None = None, retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s


@tool(effect="idempotent", retries=4, retry_on=RequestFailed)
async def http_request(
    method: str,
    url: str,
    *,
    params: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
    json: Any = None,
    content: str | bytes | Content | None = None,
    timeout: float = 30.0,
    idempotency_key: str | None = None,
) -> dict[str, Any]:
    """Make a request; a server that keeps to `Idempotency-Key` acts on it once.

    params   added to the URL's query, which is then written anew: leave them out of a signed URL
    headers  `Idempotency-Key` is the call's key unless it is given here
    json     a value to send as JSON; `content` is sent as it is
    timeout  seconds for all of it; not of a retry, which has as many again

    Returns `status` (2xx or 3xx; a redirect is not followed), `headers`, those of `KEPT_HEADERS`
    by their names in lower case, and `body`: None where it is empty, the value of JSON, a `str` of
    text, else a `Content`. JSON that the journal cannot carry is text.

    Raises `RequestFailed`, which is tried again up to four times, after what `Retry-After` says
    (at most 300 s) or the tool's backoff, whichever is longer; `RequestRefused` and `ValueError`
    (a URL, method or header that is none), which are not. Their texts name method, scheme, host
    and port, and nothing else of the request. The arguments of a call are recorded, though: keep a
    token out of them in a tool of your own that calls this one (docs/effects.md), or take it out
    with `journal.connect(redact=…)`. Raises `UsageError` where httpx is not installed.
    """
    client = _httpx()
    method = method.upper()
    if not (method.isascii() and method.isalpha()):
        raise ValueError("http_request: the method is none; name one such as GET or POST")
    address = _address(url)
    shown = f"{method} {address.scheme}://{address.netloc.decode()}"
    # Not in the URL that is asked for: httpx writes that to its own log.
    auth = (address.username, address.password) if address.userinfo else None
    address = address.copy_with(userinfo=b"")
    if params:
        address = address.copy_merge_params(params)
    try:
        sent = client.Headers(headers)
        if idempotency_key:
            sent.setdefault("Idempotency-Key", _header(idempotency_key))
        if isinstance(content, Content):
            sent.setdefault("Content-Type", content.media_type)
            content = content.data
        tls = await asyncio.to_thread(_tls)
        async with (
            asyncio.timeout(timeout),
            client.AsyncClient(timeout=None, verify=tls) as session,
        ):
            answer = await session.request(
                method, address, headers=sent, json=json, content=content, auth=auth
            )
    except TimeoutError:
        raise RequestFailed(f"{shown}: no answer within {timeout:g} s") from None
    except (client.LocalProtocolError, UnicodeEncodeError):
        # Their texts show the header.
        raise ValueError(f"{shown}: a header is not valid; use printable ASCII") from None
    except client.RequestError as error:
        raise RequestFailed(f"{shown}: {type(error).__name__}") from None
    _check(answer, shown)
    kept = {name: answer.headers[name] for name in KEPT_HEADERS if name in answer.headers}
    return {"status": answer.status_code, "headers": kept, "body": _body(answer)}


def _httpx() -> Any:
    try:
        import httpx
    except ImportError:
        raise UsageError("http_request needs httpx; pip install 'step-journal[http]'") from None
    return httpx


@functools.cache
def _tls() -> ssl.SSLContext:
    # To make one reads every certificate.
    context: ssl.SSLContext = _httpx().create_ssl_context()
    return context


def _address(url: str) -> httpx.URL:
    client = _httpx()
    try:
        address: httpx.URL = client.URL(url)
    except (client.InvalidURL, TypeError):
        address = client.URL("")
    if address.scheme not in ("http", "https") or not address.host:
        # It may hold a password, so it is not shown.
        raise ValueError("http_request: the URL is none; it takes http://HOST… or https://HOST…")
    return address


def _header(key: str) -> str:
    """The key as a header's value; the digest of one that a server may not take."""
    if len(key) <= 255 and key.isascii() and key.isprintable():
        return key
    return hashlib.sha256(key.encode()).hexdigest()


# --- the answer -------------------------------------------------------------------------------


def _check(answer: httpx.Response, shown: str) -> None:
    status = answer.status_code
    if status < 400:
        return
    try:
        reason = f" {HTTPStatus(status).phrase}"
    except ValueError:
        reason = ""
    message = f"{shown}: {status}{reason}"
    if status < 500 and status not in TRANSIENT:
        raise RequestRefused(message, status)
    raise RequestFailed(message, status, _retry_after_s(answer.headers.get("retry-after", "")))


def _retry_after_s(text: str) -> float | None:
    """Seconds of a `Retry-After`, which is a number of them or a date; None where it is neither."""
    if text.isascii() and text.isdigit():
        seconds = float(text)
    else:
        parsed = email.utils.parsedate_tz(text)
        if parsed is None:
            return None
        try:
            seconds = email.utils.mktime_tz(parsed) - time.time()
        except (ValueError, OverflowError):
            return None
    return min(max(0.0, seconds), RETRY_AFTER_MAX_S)


def _body(answer: httpx.Response) -> Any:
    media_type = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
    kind, _, rest = media_type.partition("/")
    if not answer.content:
        return None
    if rest == "json" or rest.endswith("+json"):
        try:
            value = jsons.loads(answer.content)
            encode_value(value)
        except (ValueError, RecursionError, ValueRefused):
            return answer.text
        return value
    if kind == "text" or rest in _TEXTS or rest.endswith("+xml"):
        return answer.text
    return Content(answer.content, media_type if kind and rest else "application/octet-stream")


_TEXTS = {"xml", "javascript", "yaml", "x-ndjson", "jsonl", "x-www-form-urlencoded"}
