"""Which DuckDB file is ours: its first bytes, its schema's version, and the SQL that makes it.

Works on a connection that `store` hands in; imports no DuckDB itself.
"""

from __future__ import annotations

import contextlib
import os
from importlib.resources import files
from typing import Any

from journal.errors import ProjectionDamaged, ProjectionError
from projector.rows import TABLES

VERSION = 2
"""Of tables and views. A file of another version is rebuilt, never migrated."""

SIDES = (".wal", ".wal.checkpoint", ".wal.recovery")
"""What DuckDB keeps beside a file, by the end of its name."""

_MAGIC = b"DUCK"
_MAGIC_AT = 8

_MARK = "The version of these tables; another one is rebuilt."
"""A comment in the catalogue, by which a file of any release is known, even one without a head."""

HEAD_BYTES = 3 * 4_096
"""What DuckDB writes first. A file that is shorter, and has no WAL, holds nothing yet."""

_CHUNK_BYTES = 1 << 20


def followed(path: str) -> str:
    """Where a link leads, else `path`: DuckDB puts its WAL beside the file itself."""
    return os.path.realpath(path) if os.path.islink(path) else path


def looks_new(path: str) -> bool:
    """True where there is no file, or one that DuckDB has not finished making.

    Raises `ProjectionError` for what is no DuckDB file or cannot be read and for a WAL without its
    file, `ProjectionDamaged` for what was a projection: DuckDB itself is never let near them.
    `path` is no link.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(HEAD_BYTES)
    except FileNotFoundError:
        for side in SIDES:
            # DuckDB would remove it. Where the file is there by now, somebody has just made both.
            if os.path.exists(path + side) and not os.path.exists(path):
                raise ProjectionError(
                    f"{path}{side}: belongs to a file that was moved; "
                    f"move it back beside it, or away too"
                ) from None
        return True
    except OSError as error:
        raise ProjectionError(f"{path}: {error.strerror}; check path and permissions") from None
    if head and head[_MAGIC_AT:12] != _MAGIC:
        sqlite = head.startswith(b"SQLite format")
        if not sqlite and _marked(path):
            raise damaged(path, "its head is gone")
        what = "an SQLite file" if sqlite else "no DuckDB file"
        raise ProjectionError(f"{path}: is {what}; name another with --db")
    if len(head) < HEAD_BYTES and os.path.exists(path + ".wal"):
        raise damaged(path, "it was cut short")
    return len(head) < HEAD_BYTES


def _marked(path: str) -> bool:
    """Whether a file without a DuckDB file's head, or its WAL, holds a projection's catalogue."""
    mark = _MARK.encode()
    for name in (path, path + ".wal"):
        before = b""
        with contextlib.suppress(OSError), open(name, "rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                if mark in before + chunk:
                    return True
                before = chunk[-len(mark) :]
    return False


def damaged(path: str, what: str) -> ProjectionDamaged:
    """The error for a file that was altered from outside."""
    return ProjectionDamaged(
        f"{path}: is damaged ({what}); make it anew from the log with: projector rebuild"
    )


def held(path: str) -> ProjectionError:
    """The error for a file that another process has open."""
    return ProjectionError(
        f"{path}: another process holds it; if that is no projector, close it first"
    )


def check_place(path: str) -> None:
    """Raise `ProjectionError` where no file can be made beside `path`."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise ProjectionError(f"{path}: there is no folder {folder}; make it or name another --db")
    if not os.access(folder, os.W_OK) or (os.path.exists(path) and not os.access(path, os.W_OK)):
        raise ProjectionError(f"{path}: cannot be written; check the permissions of {folder}")


_THINGS = " UNION ALL ".join(
    f"SELECT {name} FROM {function}() WHERE database_name = 'd' AND NOT {internal}"
    for function, name, internal in (
        ("duckdb_tables", "table_name", "internal"),
        ("duckdb_views", "view_name", "internal"),
        ("duckdb_functions", "function_name", "internal"),
        ("duckdb_types", "type_name", "internal"),
        ("duckdb_sequences", "sequence_name", "temporary"),
        ("duckdb_schemas", "schema_name", "(internal OR schema_name = 'main')"),
    )
)
"""What somebody has put into the attached database."""


def is_ours(con: Any, path: str) -> bool:
    """Whether the attached database `d` holds our tables; False where it holds nothing at all.

    Raises `ProjectionError` for what is somebody else's and for another release's schema.
    """
    found = {name for (name,) in con.execute(_THINGS).fetchall()}
    if not found:
        return False
    whole = found.issuperset({*TABLES, "schema_version"})
    if not whole and not _of_any_release(con):
        raise ProjectionError(f"{path}: holds what is no projection's; name another file with --db")
    rows = con.execute("SELECT version FROM d.schema_version").fetchall()
    if rows != [(VERSION,)]:
        theirs = rows[0][0] if rows else "unknown"
        found_there = f"has schema version {theirs}, this release has {VERSION}"
    elif not whole:
        found_there = "lacks some of the tables"
    else:
        return True
    raise ProjectionError(
        f"{path}: {found_there}; make it anew from the log with: projector rebuild"
    )


def was_ours(con: Any, path: str) -> bool:
    """Like `is_ours`, for a projection of any release: what is to be made anew."""
    return _of_any_release(con) or is_ours(con, path)


def _of_any_release(con: Any) -> bool:
    views = con.execute(
        "SELECT comment FROM duckdb_views() "
        "WHERE database_name = 'd' AND view_name = 'schema_version'"
    ).fetchall()
    return bool(views == [(_MARK,)])


def create(con: Any) -> None:
    """Make tables and views in the current database, in one transaction."""
    folder = files("projector") / "sql"
    con.execute("BEGIN")
    for name in ("schema.sql", "views.sql"):
        con.execute((folder / name).read_text(encoding="utf-8"))
    con.execute(f"CREATE VIEW schema_version AS SELECT {VERSION} AS version")
    con.execute(f"COMMENT ON VIEW schema_version IS '{_MARK}'")
    con.execute("COMMIT")
