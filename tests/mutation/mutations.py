"""What is broken on purpose, one at a time, and the tests that must see it.

A mutation is a text of the source and another in its place. It names the promise that it breaks
(docs/guarantees.md) and the tests that guard it; one of these at least must fail.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutation(NamedTuple):
    """`old` stands once in `file`; `tests` are what pytest is given."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTATIONS = (
    Mutation(
        "an old epoch counts",
        "journal/acceptance.py",
        "if event.epoch != head.epoch or event.owner != head.owner:",
        "if False:",
        ("tests/unit/test_acceptance.py",),
    ),
    Mutation(
        "a retried append counts as another",
        "journal/acceptance.py",
        "if event.id == head.last_id:",
        "if False:",
        ("tests/unit/test_acceptance.py",),
    ),
    Mutation(
        "a gap is accepted",
        "journal/acceptance.py",
        "if ahead == 1:",
        "if ahead >= 1:",
        ("tests/unit/test_acceptance.py",),
    ),
    Mutation(
        "what Kafka acknowledged counts as accepted",
        "journal/owner.py",
        'self._at_ack = not log.conditional and confirm == "once"',
        "self._at_ack = not log.conditional",
        ("tests/integration/test_readback.py",),
    ),
    Mutation(
        "rows and offsets are committed apart",
        "projector/store.py",
        "con.from_arrow(rows).insert_into(name)",
        'con.from_arrow(rows).insert_into(name); con.execute("COMMIT; BEGIN")',
        ("tests/integration/test_projector.py", "-k", "failed_commits"),
    ),
    Mutation(
        "states are adopted before the commit",
        "projector/store.py",
        "            self._commit(con)\n",
        '            con.execute("ROLLBACK")\n',
        ("tests/integration/test_projector.py", "-k", "one_run"),
    ),
    Mutation(
        "a commit of the embedded log is not synced",
        "journal/sqlite_file.py",
        'db.pragma("synchronous", "FULL")',
        'db.pragma("synchronous", "OFF")',
        ("tests/integration/test_sqlite_log.py", "-k", "test_a_lost_sync_is_an_unknown_outcome"),
    ),
    Mutation(
        "an append goes ahead though others have appended",
        "journal/sqlite_writer.py",
        "if expected != head or cursor.broken:",
        "if cursor.broken:",
        ("tests/contract/test_log_contract.py", "-k", "sqlite"),
    ),
    Mutation(
        "a once call runs before its intent is read back",
        "journal/owner.py",
        "if self._at_ack and read_back:",
        "if False:",
        ("tests/integration/test_readback.py",),
    ),
    Mutation(
        "with once a claim counts before what stands before it",
        "journal/owner.py",
        "if EVENT_TYPES[pending.event.type][0] == CLAIM:\n                # It counts",
        "if False:\n                # It counts",
        ("tests/integration/test_readback.py", "-k", "before_a_claim"),
    ),
    Mutation(
        "whoever comes late is not told what it has missed",
        "journal/readback.py",
        "elif self._position > known + 1:",
        "elif False:",
        ("tests/unit/test_readback.py", "-k", "comes_late"),
    ),
    Mutation(
        "a completed call runs again",
        "journal/call.py",
        "if known is not None and known.status == COMPLETED:",
        "if False:",
        ("tests/integration/test_agent.py", "-k", "memory"),
    ),
    Mutation(
        "a once call in flight counts as never begun",
        "journal/evolve.py",
        'if lost and call.effect == "once":',
        "if False:",
        ("tests/unit/test_state_calls.py",),
    ),
    Mutation(
        "of two messages with one id the sender keeps its own",
        "journal/owner.py",
        "mine.event, mine.body = event, None\n            self._resolve",
        "self._resolve",
        ("tests/integration/test_confirm.py", "-k", "two_messages"),
    ),
    Mutation(
        "of two messages with one id the sender counts its own, acknowledged later",
        "journal/owner.py",
        "mine.event, mine.body = event, None\n        elif",
        "pass\n        elif",
        ("tests/integration/test_confirm.py", "-k", "two_messages"),
    ),
    Mutation(
        "a rebuild takes the old file away before the new one has its name",
        "projector/rebuild.py",
        "    os.replace(new, real)\n",
        "    os.unlink(real)\n    os.replace(new, real)\n",
        ("tests/crash/test_boundaries_kill.py", "-k", "swap"),
    ),
    Mutation(
        "a projector may write to a file that is being replaced",
        "projector/rebuild.py",
        "        lock(file, fcntl.LOCK_SH, db)\n",
        "",
        ("tests/integration/test_projector_rebuild.py", "-k", "meanwhile or keeps"),
    ),
    Mutation(
        "a damaged file counts as one that cannot be opened now",
        "projector/store_file.py",
        '("Corrupt database file", "a checksum is wrong"),',
        "",
        ("tests/integration/test_projector_damaged.py", "-k", "damaged_file"),
    ),
)
