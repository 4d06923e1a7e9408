"""`projector rebuild`: the whole log folded into a new file, which then takes the old one's place.

The old file is held meanwhile, so that nobody writes to it, and stays under another name in the
end: what is damaged may still be read by somebody, and what is gone from the log may be in it.
Knows neither SQL nor arguments.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import stat
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import count

from journal.errors import DiskFailed, DiskFull, ProjectionDamaged, ProjectionError
from projector.runner import Runner
from projector.running import Opened
from projector.store import Store
from projector.store_file import lock, settle
from projector.store_schema import SIDES, followed

_NEW = ".rebuild"
_OLD = ".old"


async def rebuild(db: str, open: Callable[[], Awaitable[Opened]]) -> tuple[int, str]:
    """Make the projection `db` anew from the log that `open` opens.

    Returns the number of records read, and where the file is now that was there before. Until the
    last moment that is as it was, whatever happens, and can be read.

    Raises what is wrong with the log, and `ProjectionError`: no projection there, another
    journal's, none of ours, held by another process, no room for a second file.
    """
    db = followed(db)
    log, identity = await open()
    # Nobody may read the new file who may not read the old one.
    before = os.umask(0o077)
    try:
        with contextlib.suppress(ProjectionDamaged):
            await asyncio.to_thread(settle, db, identity.journal_id)
        new = os.path.realpath(db) + _NEW
        _begin(new)
        open_new = partial(Store.open, new, identity.journal_id)
        try:
            store = await asyncio.to_thread(open_new)
        except (DiskFailed, DiskFull):
            _remove(new)
            raise
        # From here on the new file is held as well, until it has its name: of two who rebuild at
        # once, one is refused.
        runner = Runner(log, identity, open_new, store=store)
        try:
            with _kept_from_writers(db):
                await runner.run(follow=False)
                assert runner.store is not None
                await asyncio.to_thread(runner.store.checkpoint)
                return runner.written, _swap(db, new)
        except BaseException:
            # While it is held, so that it is nobody else's.
            _remove(new)
            raise
        finally:
            await runner.close()
    finally:
        os.umask(before)
        await log.close()


def _begin(new: str) -> None:
    """Remove what a rebuild that was killed has left. Raises `ProjectionError` where one runs."""
    try:
        file = os.open(new, os.O_RDWR)
    except FileNotFoundError:
        # One that was killed at its very end may have left what DuckDB had beside it.
        _remove(new)
        return
    try:
        lock(file, fcntl.LOCK_EX, new)
        _remove(new)
    finally:
        os.close(file)


@contextlib.contextmanager
def _kept_from_writers(db: str) -> Iterator[None]:
    """Nobody can open the file for writing in the block; who only reads it is let be.

    Nothing else in this process may open the file meanwhile.
    """
    file = os.open(db, os.O_RDONLY)
    try:
        lock(file, fcntl.LOCK_SH, db)
        yield
    finally:
        os.close(file)


def _swap(db: str, new: str) -> str:
    """Put the new file in the old one's place in one step, and return the old one's other name.

    What DuckDB has beside a file that it cannot read goes along; beside one that it can there is
    nothing any more. Killed in between, the old file is in its place, without that.
    """
    real = os.path.realpath(db)
    hand_over(new, os.stat(real))
    old = _kept(real)
    for side in SIDES:
        with contextlib.suppress(FileNotFoundError):
            os.rename(db + side, old + side)
    os.replace(new, real)
    folder = os.open(os.path.dirname(real), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return old


def hand_over(new: str, was: os.stat_result) -> None:
    """Give the new file the old one's owner, group and mode, as far as this user may."""
    mode = stat.S_IMODE(was.st_mode)
    try:
        os.chown(new, was.st_uid, was.st_gid)
    except PermissionError:
        try:
            os.chown(new, -1, was.st_gid)
        except PermissionError:
            # What the mode allows was meant for another group than the new file's.
            mode &= stat.S_IRWXU
    os.chmod(new, mode)


def _kept(real: str) -> str:
    """Give the file a second name, of its own: `FILE.old`, or with a number where that is taken."""
    for number in count(1):
        name = real + _OLD + (f".{number}" if number > 1 else "")
        try:
            os.link(real, name)
        except FileExistsError:
            # A rebuild that was killed may have come this far; a link to the file keeps nothing.
            if not os.path.samestat(os.stat(real), os.lstat(name)):
                continue
        except OSError as error:
            raise ProjectionError(
                f"{real}: cannot be kept as {name} ({error.strerror}); move it away and run the "
                f"projector again"
            ) from None
        return name
    raise AssertionError


def _remove(new: str) -> None:
    for side in ("", *SIDES):
        _unlink(new + side)


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
