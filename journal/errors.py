"""Every error that reaches a user, one class for each thing that a caller can do about it.

A message is one line: what is wrong, then what to do. It names positions as `partition:offset`
and never holds a payload or a secret. This file imports nothing.
"""

from __future__ import annotations


class JournalError(Exception):
    """Root of all errors that this library raises on purpose."""


# --- the caller's input -------------------------------------------------------------------


class UsageError(JournalError):
    """The call or the command line is wrong; nothing was read or written."""


class ValueRefused(JournalError):
    """A value that JSON cannot carry; raised before anything is recorded.

    `path` is where it stands inside the value, such as `$.rows[3].score`.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


# --- tasks ----------------------------------------------------------------------------------


class TaskNotFound(JournalError):
    """No such task, and no description to start it with."""


class TaskMismatch(JournalError):
    """The task exists with another description or another parent; the message shows both."""


class TaskRunning(JournalError):
    """The task has an owner, and the caller asked not to take it over."""


class TaskEnded(JournalError):
    """The task has ended, so nothing more can be appended to it."""


class TaskFenced(JournalError):
    """Another worker has claimed the task. This worker must stop: its events no longer count."""


class ReplayDiverged(JournalError):
    """The code asks for something else than what is recorded; the message shows both sides."""


class CallUncertain(JournalError):
    """A `once` call was in flight when its worker died: nobody knows whether it happened.

    `step_index` and `position` name the call. Settle it with `step.resolve(...)`.
    """

    def __init__(self, message: str, step_index: int, position: int) -> None:
        super().__init__(message)
        self.step_index = step_index
        self.position = position


class AskTimedOut(JournalError):
    """Nobody answered in time. `key` names the request."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message)
        self.key = key


class SubtaskFailed(JournalError):
    """A sub-task failed, or was cancelled. `error_type` is the exception's type name; the cause is
    chained where it ran in this process."""

    def __init__(self, message: str, name: str, error_type: str) -> None:
        super().__init__(message)
        self.name = name
        self.error_type = error_type


class ToolError(JournalError):
    """A tool failed for good. `error_type` is the exception's type name; the cause is chained
    where the tool ran in this process."""

    def __init__(self, message: str, error_type: str) -> None:
        super().__init__(message)
        self.error_type = error_type


# --- events -----------------------------------------------------------------------------------


class EventTooNew(JournalError):
    """An event that this release cannot read; reading stops here, it is never skipped."""

    def __init__(self, type: str, v: int, position: str) -> None:
        super().__init__(
            f"{position}: event {type} version {v} was written by a newer release; "
            f"upgrade step-journal to read it"
        )
        self.type = type
        self.v = v
        self.position = position


class BadRecord(JournalError):
    """A record that is no event. Readers turn it into an anomaly; it never stops them."""


# --- logs -------------------------------------------------------------------------------------


class LogError(JournalError):
    """Something about the log itself."""


class LogNotFound(LogError):
    """The file or the topic is not there; the message names `journal init`."""


class LogUnavailable(LogError):
    """The log cannot be reached or written now. What was asked for was certainly not written."""


class EventTooLarge(LogError):
    """The log takes no event of that size. It was certainly not written, nor will it ever be."""


class LogMisconfigured(LogError):
    """The log's settings would break a promise; the message names setting and remedy."""


class LogReplaced(LogError):
    """Under the same name there is another log now than the one that was read before."""


class HistoryTruncated(LogError):
    """The records asked for have been deleted from the start of the log."""


class NotAJournal(LogError):
    """The file or topic holds something else than a journal."""


class AppendRefused(LogError):
    """Nothing was written: the key's last record is not the one that the writer knew."""


class OutcomeUnknown(LogError):
    """The append may or may not have been written. The same event again is always safe."""


# --- blobs ------------------------------------------------------------------------------------


class BlobMissing(JournalError):
    """A payload that an event refers to is not in the blob store."""


class BlobAltered(JournalError):
    """A payload in the blob store is not the one that the event refers to."""


# --- the projection ---------------------------------------------------------------------------


class ProjectionError(JournalError):
    """The DuckDB file cannot be used: it is none, or not ours, or another journal's."""


class DiskFailed(ProjectionError):
    """The disk failed under the DuckDB file. What was committed before is in it, if the disk is."""


class ProjectionDamaged(ProjectionError):
    """The DuckDB file was cut short or altered; the message names `projector rebuild`."""


class DiskFull(ProjectionError):
    """The DuckDB file has no room to grow. What was committed is in it, and it can go on there."""
