"""An HTTP server of the standard library on 127.0.0.1, which answers as it is told.

Knows nothing of the journal.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Answer:
    """What is sent back. `drops` closes the connection instead, `waits` sends nothing until the
    server ends."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    drops: bool = False
    waits: bool = False


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Server:
    """`requests` are those that came; each takes the next of `answers`, or 200 without a body.
    The first one sets `arrived`."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []
        self.arrived = threading.Event()
        self.ending = threading.Event()
        self.port = 0

    def url(self, path: str = "/", userinfo: str = "") -> str:
        return f"http://{userinfo}127.0.0.1:{self.port}{path}"

    @contextlib.contextmanager
    def running(self) -> Iterator[Server]:
        with ThreadingHTTPServer(("127.0.0.1", 0), self._handler()) as server:
            self.port = server.server_port
            thread = threading.Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            try:
                yield self
            finally:
                self.ending.set()
                server.shutdown()
                thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.requests.append(Request(self.command, self.path, headers, body))
                outer.arrived.set()
                answer = outer.answers.pop(0) if outer.answers else Answer()
                if answer.waits:
                    outer.ending.wait()
                if answer.waits or answer.drops:
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            do_GET = do_POST = do_PUT = do_DELETE = do

            def log_message(self, *_: object) -> None:
                pass

        return Handler
