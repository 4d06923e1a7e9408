"""What Kafka's answer to an append means for whoever made it. Sends nothing; knows no partition."""

from __future__ import annotations

from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    InvalidTimestampError,
    InvalidTopicError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
    TopicAuthorizationFailedError,
)

from journal.errors import EventTooLarge, JournalError, LogUnavailable, OutcomeUnknown
from journal.kafka_client import Clients, words
from journal.log import Append

_TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)
_REFUSALS = (
    *_TOO_LARGE,
    ClusterAuthorizationFailedError,
    InvalidTimestampError,
    InvalidTopicError,
    PolicyViolationError,
    TopicAuthorizationFailedError,
)
"""Answers of a broker that looked at the batch and wrote nothing of it."""


def failure(clients: Clients, error: BaseException, alone: Append | None) -> JournalError:
    """Why appends failed: `EventTooLarge` or `LogUnavailable` where they were certainly not
    written, else `OutcomeUnknown`. `alone` is the append that was sent without others."""
    if not isinstance(error, _REFUSALS):
        return unknown(words(error))
    if isinstance(error, _TOO_LARGE) and alone is not None:
        return EventTooLarge(
            f"an event of {len(alone.value):,} bytes is more than topic "
            f"{clients.address.topic} takes: nothing was written; store the value elsewhere, or "
            f"raise max.message.bytes"
        )
    return refused(clients, error)


def refused(clients: Clients, error: BaseException) -> LogUnavailable:
    """Nothing was sent, or nothing of it taken."""
    return clients.unavailable(f"nothing was written: {words(error)}")


def unknown(why: str) -> OutcomeUnknown:
    """It was sent, and may be in the topic."""
    return OutcomeUnknown(f"it is unknown whether Kafka has written the event: {why}")
