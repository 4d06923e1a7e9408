"""Record the samples that have no file yet. Never overwrites one."""

from __future__ import annotations

import json

from tests.golden.samples import BAD, WRITTEN_ONCE, written_now
from tests.golden.test_golden import BAD_FILES, EVENT_FILES, reading, reason

EVENT_FILES.mkdir(exist_ok=True)
BAD_FILES.mkdir(exist_ok=True)
for name, value in (written_now() | WRITTEN_ONCE).items():
    file = EVENT_FILES / f"{name}.json"
    if not file.exists():
        file.write_bytes(value)
        text = json.dumps(reading(value), indent=2, ensure_ascii=False) + "\n"
        file.with_suffix(".read.json").write_text(text, encoding="utf-8")
for name, value in BAD.items():
    file = BAD_FILES / f"{name}.json"
    if not file.exists():
        file.write_bytes(value)
        file.with_suffix(".reason.txt").write_text(reason(value) + "\n", encoding="utf-8")
