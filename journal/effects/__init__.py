"""Ready effects: tools that may run again after a crash without doing their work twice.

    await step.call(write_file, path="report.md", content=text)
    await step.call(append_line, path="sent.log", line="4711")
    await step.call(http_request, "POST", "https://api.example.org/orders", json=order)

Each asks for no more than a tool of anybody's could: an idempotency key. Nothing here is imported
by the journal, and nothing here knows events or logs.
"""

from journal.effects.files import append_line, write_file
from journal.effects.http import RequestFailed, RequestRefused, http_request

__all__ = ["RequestFailed", "RequestRefused", "append_line", "http_request", "write_file"]
