"""Which DuckDB file is ours: its first bytes, its schema's version, and the SQL that makes it.

Works on a connection that `store` hands in; imports no DuckDB itself.
"""

from __future__ import annotations

import os
from importlib.resources import files
from typing import Any

from journal.errors import ProjectionError
from projector.rows import TABLES

VERSION = 2
"""Of tables and views. A file of another version is rebuilt, never migrated."""

_MAGIC = b"DUCK"
_MAGIC_AT = 8


def looks_new(path: str) -> bool:
    """True where there is no file, or an empty one, for DuckDB to begin.

    Raises `ProjectionError` for what is no DuckDB file or cannot be read: DuckDB itself is
    never let near it.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(16)
    except FileNotFoundError:
        return True
    except OSError as error:
        raise ProjectionError(f"{path}: {error.strerror}; check path and permissions") from None
    if head and head[_MAGIC_AT:12] != _MAGIC:
        what = "an SQLite file" if head.startswith(b"SQLite format") else "no DuckDB file"
        raise ProjectionError(f"{path}: is {what}; name another with --db")
    return not head


def check_place(path: str) -> None:
    """Raise `ProjectionError` where no file can be made beside `path`."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise ProjectionError(f"{path}: there is no folder {folder}; make it or name another --db")
    if not os.access(folder, os.W_OK) or (os.path.exists(path) and not os.access(path, os.W_OK)):
        raise ProjectionError(f"{path}: cannot be written; check the permissions of {folder}")


def is_ours(con: Any, path: str) -> bool:
    """Whether the attached database `d` holds our tables; False where it holds nothing at all.

    Raises `ProjectionError` for other tables and for another release's schema.
    """
    found = {
        name
        for (name,) in con.execute(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = 'd' "
            "UNION ALL SELECT view_name FROM duckdb_views() "
            "WHERE database_name = 'd' AND NOT internal"
        ).fetchall()
    }
    if not found:
        return False
    if not found.issuperset({*TABLES, "schema_version"}):
        raise ProjectionError(
            f"{path}: holds other tables than a projection's; name another file with --db"
        )
    rows = con.execute("SELECT version FROM d.schema_version").fetchall()
    if rows != [(VERSION,)]:
        theirs = rows[0][0] if rows else "unknown"
        raise ProjectionError(
            f"{path}: has schema version {theirs}, this release has {VERSION}; "
            f"move the file away and run the projector again"
        )
    return True


def create(con: Any) -> None:
    """Make tables and views in the current database, in one transaction."""
    folder = files("projector") / "sql"
    con.execute("BEGIN")
    for name in ("schema.sql", "views.sql"):
        con.execute((folder / name).read_text(encoding="utf-8"))
    con.execute(f"CREATE VIEW schema_version AS SELECT {VERSION} AS version")
    con.execute(
        "COMMENT ON VIEW schema_version IS 'The version of these tables; another one is rebuilt.'"
    )
    con.execute("COMMIT")
