"""Appending, on every log: order, outcomes, durability, conditions."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from journal.errors import AppendRefused, LogUnavailable
from journal.log import NONE, Cursor, Log, append_and_wait
from tests.contract.probe import OpenLog, Probe, T, everything, put, settled, values


async def test_appends_are_written_in_the_order_of_the_calls(log: Log) -> None:
    probes = [Probe(b"%d" % n, key=b"key-%d" % (n % 7)) for n in range(500)]
    for n, probe in enumerate(probes):
        log.append(0, probe)
        if n % 90 == 0:
            await asyncio.sleep(0)
    await asyncio.gather(*(probe.done.wait() for probe in probes))
    offsets = [probe.offset for probe in probes]
    assert offsets == sorted(set(offsets))
    records = await everything(log)
    assert values(records) == [probe.value for probe in probes]
    assert [record.offset for record in records] == offsets


async def test_a_record_comes_back_as_it_was_written(log: Log) -> None:
    probe = Probe(b"value", key=b"a key", at=T + 5, headers=(("type", b"X"), ("v", b"1")))
    await settled(log, probe)
    (record,) = await everything(log)
    assert record == (probe.offset, b"a key", b"value", T + 5)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\0",
        b"a\0b\0",
        bytes(range(256)),
        b"\xff\xfe\x80",
        b'{"a": "\\ud800"}',
        b"x" * 900_000,
    ],
    ids=["empty", "nul", "nuls", "all bytes", "no utf-8", "surrogate", "900 kB"],
)
async def test_any_bytes_are_a_value(log: Log, value: bytes) -> None:
    await put(log, b"before", value, b"after")
    assert values(await everything(log)) == [b"before", value, b"after"]
    assert values(await log.read_key(0, b"key")) == [b"before", value, b"after"]


async def test_random_bytes_come_back_in_batches(log: Log) -> None:
    written = [os.urandom(n * 37 % 5_000) for n in range(1_500)]
    await put(log, *written)
    batches = [batch async for batch in log.read(0, (await log.starts())[0])]
    assert all(batches)
    assert [record.value for batch in batches for record in batch] == written


async def test_a_key_may_be_any_bytes(log: Log) -> None:
    keys = [b"\0", b"a", b"a\0", b"a\0b", b"\xff\xfe", "schlüssel".encode(), b"k" * 255]
    for key in keys:
        await put(log, b"of " + key, key=key)
    assert [record.key for record in await everything(log)] == keys
    for key in keys:
        assert values(await log.read_key(0, key)) == [b"of " + key]


async def test_there_is_no_append_without_a_key(log: Log) -> None:
    probe = Probe(b"value")
    probe.key = None  # type: ignore[assignment]
    with pytest.raises(TypeError):
        log.append(0, probe)
    await put(log, b"other")
    assert values(await everything(log)) == [b"other"]
    assert probe.outcomes == []


async def test_outcomes_are_told_once_on_the_loops_thread_and_not_inside_append(log: Log) -> None:
    probes = [Probe(b"%d" % n) for n in range(120)]
    for probe in probes:
        log.append(0, probe)
        assert probe.outcomes == []
    await asyncio.gather(*(probe.done.wait() for probe in probes))
    await put(log, b"more")
    assert [len(probe.outcomes) for probe in probes] == [1] * 120
    assert {thread for probe in probes for thread in probe.threads} == {threading.get_ident()}


async def test_one_callers_mistake_costs_the_others_nothing(log: Log) -> None:
    class Clumsy(Probe):
        def written(self, offset: int) -> None:
            super().written(offset)
            raise ZeroDivisionError

    seen: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda loop, context: seen.append(context["exception"])
    )
    probes = await settled(log, Probe(b"1"), Clumsy(b"2"), Probe(b"3"))
    assert [probe.offset for probe in probes] == sorted({probe.offset for probe in probes})
    assert [type(error) for error in seen] == [ZeroDivisionError]
    await put(log, b"4")
    assert values(await everything(log)) == [b"1", b"2", b"3", b"4"]


async def test_append_and_wait(log: Log) -> None:
    first = await append_and_wait(log, 0, b"key", b"1", T)
    second = await append_and_wait(log, 0, b"key", b"2", T, expect=Cursor(first))
    assert first < second
    assert [record.offset for record in await everything(log)] == [first, second]


async def test_a_cancelled_wait_leaves_the_log_usable(log: Log) -> None:
    waiting = asyncio.create_task(append_and_wait(log, 0, b"key", b"1", T))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await put(log, b"2")
    assert values(await everything(log)) in ([b"1", b"2"], [b"2"])


# --- closing --------------------------------------------------------------------------------


async def test_close_settles_what_was_queued(open_log: OpenLog) -> None:
    log = await open_log()
    probes = [Probe(b"%d" % n) for n in range(300)]
    for probe in probes:
        log.append(0, probe)
    await log.close()
    assert [probe.offset for probe in probes] == sorted({probe.offset for probe in probes})
    assert values(await everything(await open_log())) == [probe.value for probe in probes]


async def test_close_is_safe_twice_and_at_the_same_time(log: Log) -> None:
    await put(log, b"1")
    await asyncio.gather(log.close(), log.close())
    await log.close()


async def test_a_closed_log_says_so(log: Log) -> None:
    await put(log, b"1")
    await log.close()
    probe = Probe(b"2", expect=Cursor(0))
    log.append(0, probe)
    assert probe.outcomes == []
    await probe.done.wait()
    assert isinstance(probe.error, LogUnavailable)
    with pytest.raises(LogUnavailable):
        await everything(log)
    with pytest.raises(LogUnavailable):
        await anext(log.tail(0, 0))


async def test_a_handle_opened_later_sees_everything(open_log: OpenLog) -> None:
    first = await open_log()
    await put(first, b"1", b"2")
    await first.close()
    second = await open_log()
    await put(second, b"3")
    assert values(await everything(second)) == [b"1", b"2", b"3"]
    assert values(await second.read_key(0, b"key")) == [b"1", b"2", b"3"]


# --- conditions -----------------------------------------------------------------------------


async def test_a_cursor_moves_on_with_its_appends(log: Log) -> None:
    cursor = Cursor()
    for n in range(3):
        (probe,) = await settled(log, Probe(b"%d" % n, expect=cursor))
        assert cursor.offset == probe.offset
    assert not cursor.broken


async def test_a_thousand_appends_through_one_cursor(log: Log) -> None:
    cursor = Cursor()
    probes = [Probe(b"%d" % n, expect=cursor) for n in range(1_000)]
    for n, probe in enumerate(probes):
        log.append(0, probe)
        if n % 130 == 0:
            await put(log, b"other", key=b"other")
    await asyncio.gather(*(probe.done.wait() for probe in probes))
    assert values(await log.read_key(0, b"key")) == [probe.value for probe in probes]
    assert cursor.offset == probes[-1].offset


async def test_a_stale_cursor(log: Log) -> None:
    """A conditional log refuses and breaks the cursor; to another `expect` is a hint, and what
    the outcome says must be what the log holds."""
    cursor = Cursor()
    await settled(log, Probe(b"1", expect=cursor))
    await put(log, b"2")
    probes = [Probe(b"3", expect=cursor), Probe(b"4", expect=cursor), Probe(b"x", key=b"other")]
    await settled(log, *probes)
    assert isinstance(probes[2].offset, int)
    if log.conditional:
        assert [type(probe.error) for probe in probes[:2]] == [AppendRefused] * 2
        assert cursor.broken
    written = [p.value for p in probes[:2] if isinstance(p.outcomes[0], int)]
    assert values(await log.read_key(0, b"key")) == [b"1", b"2", *written]


async def test_after_a_refusal_a_new_cursor_goes_on(log: Log) -> None:
    await put(log, b"1")
    stale = Cursor()
    (probe,) = await settled(log, Probe(b"2", expect=stale))
    if log.conditional:
        assert isinstance(probe.error, AppendRefused)
        # For ever, even once the offset would be right.
        stale.offset = (await log.read_key(0, b"key"))[-1].offset
        (again,) = await settled(log, Probe(b"3", expect=stale))
        assert isinstance(again.error, AppendRefused)
    fresh = Cursor((await log.read_key(0, b"key"))[-1].offset)
    probes = await settled(log, Probe(b"4", expect=fresh), Probe(b"5", expect=fresh))
    assert values(await log.read_key(0, b"key"))[-2:] == [b"4", b"5"]
    assert fresh.offset == probes[1].offset


async def test_a_foreign_record_in_the_middle_of_a_pipeline(log: Log) -> None:
    cursor = Cursor()
    probes = [
        Probe(b"1", expect=cursor),
        Probe(b"2", expect=cursor),
        Probe(b"foreign"),
        Probe(b"3", expect=cursor),
        Probe(b"4", expect=cursor),
    ]
    await settled(log, *probes)
    if log.conditional:
        assert [type(probe.error) for probe in probes[3:]] == [AppendRefused] * 2
        assert values(await everything(log)) == [b"1", b"2", b"foreign"]
        assert cursor.broken
    else:
        assert values(await everything(log)) == [b"1", b"2", b"foreign", b"3", b"4"]


async def test_two_cursors_of_one_key_in_one_turn(log: Log) -> None:
    one, two = Cursor(), Cursor()
    probes = [Probe(b"%d" % n, expect=(one, two)[n % 2]) for n in range(8)]
    await settled(log, *probes)
    if log.conditional:
        assert values(await everything(log)) == [b"0", b"2", b"4", b"6"]
        assert (one.broken, two.broken) == (False, True)
    else:
        assert values(await everything(log)) == [probe.value for probe in probes]


async def test_of_two_handles_that_race_exactly_one_wins(open_log: OpenLog) -> None:
    one, two = await open_log(), await open_log()
    at = NONE
    for round_ in range(20):
        probes = [Probe(b"%d one" % round_, expect=Cursor(at)), Probe(b"%d two" % round_)]
        probes[1].expect = Cursor(at)
        one.append(0, probes[0])
        two.append(0, probes[1])
        await asyncio.gather(*(probe.done.wait() for probe in probes))
        won = [probe for probe in probes if isinstance(probe.outcomes[0], int)]
        if one.conditional:
            assert len(won) == 1
            lost = next(probe for probe in probes if probe is not won[0])
            assert isinstance(lost.error, AppendRefused)
        records = (await one.read_key(0, b"key"))[-len(won) :]
        assert {record.value for record in records} == {probe.value for probe in won}
        at = records[-1].offset


async def test_what_another_handle_wrote_counts(open_log: OpenLog) -> None:
    one, two = await open_log(), await open_log()
    await put(one, b"1")
    await put(two, b"2")
    (last,) = await put(one, b"3")
    (probe,) = await settled(two, Probe(b"4", expect=Cursor(last)))
    assert probe.offset > last
    assert values(await two.read_key(0, b"key")) == [b"1", b"2", b"3", b"4"]
