"""`python -m tests.fuzz [SECONDS [CORPUS]]`: atheris (libFuzzer) on the decoder, for so long.

Begins with the recorded events of `seeds`; a folder CORPUS keeps what was found for next time. A
crash is a traceback, exit status 1 or more, and the input in a file `crash-…` in this folder.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris  # type: ignore[import-untyped]

with atheris.instrument_imports(include=["journal", "projector"]):
    from tests.fuzz import pipeline

from tests.fuzz.seeds import WORDS, lines, lives

_MOST_BYTES = 8_192
_HANGS_S = 20
_PIECES = 12
"""Records; each is a batch of its own, behind all states read again from their rows."""


def once(data: bytes) -> None:
    """One input: hostile records, one a line."""
    pairs = pipeline.hostile(data.split(b"\n"))
    pipeline.check(pairs)
    if len(pairs) <= _PIECES:
        pipeline.check_pieces(pairs)


def main(seconds: str = "600", corpus: str | None = None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = Path(corpus or f"{folder}/corpus")
        found.mkdir(parents=True, exist_ok=True)
        begin = Path(folder) / "seeds"
        begin.mkdir()
        for n, line in enumerate(lines() + lives()):
            (begin / f"{n:03d}").write_bytes(line)
        words = Path(folder) / "words"
        words.write_text("".join(f'"{_escaped(word)}"\n' for word in WORDS))
        atheris.Setup(
            [
                sys.argv[0],
                f"-max_total_time={int(seconds)}",
                f"-max_len={_MOST_BYTES}",
                f"-timeout={_HANGS_S}",
                f"-dict={words}",
                "-print_final_stats=1",
                str(found),
                str(begin),
            ],
            once,
        )
        atheris.Fuzz()


def _escaped(word: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in word)


if __name__ == "__main__":
    main(*sys.argv[1:])
