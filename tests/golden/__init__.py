"""Bytes of every event type and version, kept for ever: `events/` and `bad/`.

`events/TYPE.vN.WHICH.json` is a record's value exactly as a release wrote it, and beside it
`.read.json` is what it reads as today. `bad/NAME.json` is a value that is refused or does not
fit, and beside it `.reason.txt` says how. `python -m tests.golden` records what is missing and
never overwrites: when a reading changes, that is for a person to see.
"""
