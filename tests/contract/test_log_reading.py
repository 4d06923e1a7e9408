"""Reading, following and truncating, on every log."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from journal.errors import HistoryTruncated, LogReplaced, LogUnavailable
from journal.log import NONE, Cursor, Log
from tests.contract.probe import (
    OpenLog,
    Probe,
    T,
    everything,
    gather,
    put,
    settled,
    take,
    values,
)


async def test_an_empty_log(log: Log) -> None:
    starts, ends = await log.starts(), await log.ends()
    assert log.partitions == 1
    assert set(starts) == set(ends) == {0}
    assert starts == ends
    assert await everything(log) == []
    assert await log.read_key(0, b"key") == []
    assert await log.offset_at(0, T) == ends[0]


async def test_starts_and_ends(log: Log) -> None:
    offsets = await put(log, b"1", b"2", b"3")
    assert (await log.starts())[0] <= offsets[0]
    assert (await log.ends())[0] > offsets[-1]


async def test_a_range_is_from_start_to_before_end(log: Log) -> None:
    offsets = await put(log, *(b"%d" % n for n in range(10)))
    assert values(await gather(log.read(0, offsets[3], offsets[6]))) == [b"3", b"4", b"5"]
    assert values(await gather(log.read(0, offsets[8]))) == [b"8", b"9"]
    assert values(await gather(log.read(0, offsets[8], offsets[9] + 1_000))) == [b"8", b"9"]
    assert await gather(log.read(0, offsets[5], offsets[5])) == []
    assert await gather(log.read(0, offsets[5], offsets[2])) == []
    assert await gather(log.read(0, (await log.ends())[0])) == []


async def test_a_reading_ends_where_the_log_ended_when_it_began(log: Log) -> None:
    await put(log, *(b"%d" % n for n in range(1_500)), key=b"k" * 200)
    seen = []
    async for batch in log.read(0, (await log.starts())[0]):
        if not seen:
            await put(log, b"late")
        seen += batch
    assert values(seen) == [b"%d" % n for n in range(1_500)]


async def test_a_start_past_the_end_is_another_log(log: Log) -> None:
    await put(log, b"1")
    end = (await log.ends())[0]
    with pytest.raises(LogReplaced) as caught:
        await gather(log.read(0, end + 5))
    assert "\n" not in str(caught.value)
    with pytest.raises(LogReplaced):
        async with asyncio.timeout(30):
            await anext(log.tail(0, end + 5))
    assert values(await everything(log)) == [b"1"]


async def test_one_keys_records_from_a_start(log: Log) -> None:
    mine: list[int] = []
    for n in range(10):
        await put(log, b"noise %d" % n, key=b"other")
        mine += await put(log, b"%d" % n)
    assert values(await log.read_key(0, b"key")) == [b"%d" % n for n in range(10)]
    assert values(await log.read_key(0, b"key", mine[7])) == [b"7", b"8", b"9"]
    assert values(await log.read_key(0, b"key", mine[7] + 1)) == [b"8", b"9"]
    assert await log.read_key(0, b"key", mine[-1] + 1) == []
    assert await log.read_key(0, b"none such") == []


async def test_one_keys_records_are_whole_however_long_it_is(log: Log) -> None:
    for n in range(0, 6_000, 500):
        await put(log, *(b"%d" % i for i in range(n, n + 500)))
        await put(log, b"noise", key=b"other")
    assert values(await log.read_key(0, b"key")) == [b"%d" % n for n in range(6_000)]
    assert values(await log.read_key(0, b"other")) == [b"noise"] * 12


async def test_offset_at(log: Log) -> None:
    offsets = [(await put(log, b"%d" % n, at=T + 1_000 * n))[0] for n in range(5)]
    for n in range(5):
        assert await log.offset_at(0, T + 1_000 * n) <= offsets[n]
        assert await log.offset_at(0, T + 1_000 * n - 500) <= offsets[n]
    assert await log.offset_at(0, T + 99_000) <= (await log.ends())[0]


async def test_offset_at_with_a_clock_that_runs_backwards(log: Log) -> None:
    offsets = [(await put(log, b"x", at=T + at))[0] for at in (5_000, 1_000, 9_000, 2_000)]
    assert await log.offset_at(0, T + 1_000) <= offsets[0]
    assert await log.offset_at(0, T + 6_000) <= offsets[2]


async def test_a_record_stays_what_it_was(log: Log) -> None:
    await put(log, b"1", b"2")
    before = await everything(log)
    await put(log, b"3")
    assert (await everything(log))[:2] == before


# --- tails ----------------------------------------------------------------------------------


async def test_a_tail_gives_what_is_there_and_then_what_comes(log: Log) -> None:
    offsets = await put(log, b"1", b"2", b"3")
    async with aclosing(log.tail(0, offsets[1])) as tail:
        assert values(await take(tail, 2)) == [b"2", b"3"]
        for n in range(4, 8):
            coming = asyncio.create_task(take(tail, 1))
            await put(log, b"%d" % n)
            assert values(await coming) == [b"%d" % n]


async def test_a_tail_sees_what_another_handle_appends(open_log: OpenLog) -> None:
    here, there = await open_log(), await open_log()
    async with aclosing(here.tail(0, (await here.ends())[0])) as tail:
        coming = asyncio.create_task(take(tail, 3))
        await put(there, b"1")
        await put(here, b"2")
        await put(there, b"3")
        assert values(await coming) == [b"1", b"2", b"3"]


async def test_many_tails_see_the_same(log: Log) -> None:
    start = (await log.ends())[0]
    tails = [log.tail(0, start) for _ in range(4)]
    coming = [asyncio.create_task(take(tail, 2_000)) for tail in tails]
    for n in range(0, 2_000, 100):
        await put(log, *(b"%d" % i for i in range(n, n + 100)))
    for records in await asyncio.gather(*coming):
        assert values(records) == [b"%d" % n for n in range(2_000)]
        assert [r.offset for r in records] == sorted({r.offset for r in records})
    for tail in tails:
        await tail.aclose()  # type: ignore[attr-defined]


async def test_a_cancelled_tail_and_a_reading_that_was_left_leave_the_log_usable(log: Log) -> None:
    await put(log, *(b"%d" % n for n in range(1_500)), key=b"k" * 200)
    start = (await log.starts())[0]
    for _ in range(3):
        waiting = asyncio.create_task(take(log.tail(0, start + 1_500), 1))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        reading = asyncio.create_task(gather(log.read(0, start)))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        async with aclosing(log.read(0, start)) as left:  # type: ignore[type-var]
            await anext(left)
    await put(log, b"last")
    assert len(await everything(log)) == 1_501


async def test_closing_ends_a_tail_that_waits(log: Log) -> None:
    await put(log, b"1")
    tail = log.tail(0, (await log.starts())[0])
    assert values(await take(tail, 1)) == [b"1"]
    coming = asyncio.create_task(take(tail, 1))
    await asyncio.sleep(0)
    await log.close()
    with pytest.raises(LogUnavailable):
        await coming


# --- truncation -----------------------------------------------------------------------------


async def test_what_was_truncated_is_gone_and_asking_for_it_is_an_error(log: Log) -> None:
    offsets = await put(log, *(b"%d" % n for n in range(10)))
    end = await log.ends()
    await log.truncate(0, offsets[4])
    assert await log.starts() == {0: offsets[4]}
    assert await log.ends() == end
    assert values(await everything(log)) == [b"4", b"5", b"6", b"7", b"8", b"9"]
    assert values(await gather(log.read(0, offsets[4], offsets[6]))) == [b"4", b"5"]
    for start in (offsets[0], offsets[3]):
        with pytest.raises(HistoryTruncated) as caught:
            await gather(log.read(0, start))
        assert "\n" not in str(caught.value)
        with pytest.raises(HistoryTruncated):
            async with asyncio.timeout(30):
                await anext(log.tail(0, start))


async def test_truncating_less_than_is_gone_changes_nothing(log: Log) -> None:
    offsets = await put(log, *(b"%d" % n for n in range(6)))
    await log.truncate(0, offsets[3])
    await log.truncate(0, offsets[1])
    await log.truncate(0, offsets[3])
    assert values(await everything(log)) == [b"3", b"4", b"5"]


async def test_everything_can_be_truncated_and_offsets_are_not_used_again(
    open_log: OpenLog,
) -> None:
    log = await open_log()
    await put(log, b"1", b"2", b"3")
    end = (await log.ends())[0]
    await log.truncate(0, end)
    assert await log.starts() == await log.ends() == {0: end}
    assert await everything(log) == []
    await log.close()
    log = await open_log()
    (offset,) = await put(log, b"4")
    assert offset >= end
    assert values(await everything(log)) == [b"4"]
    assert await log.starts() == {0: end}


async def test_one_keys_records_after_a_truncation(open_log: OpenLog) -> None:
    log, other = await open_log(), await open_log()
    offsets = await put(log, b"1", b"2", b"3", b"4")
    await put(log, b"old", key=b"gone")
    (keep,) = await put(log, b"5")
    assert values(await other.read_key(0, b"gone")) == [b"old"]
    await log.truncate(0, offsets[2])
    for handle in (log, other):
        assert values(await handle.read_key(0, b"key")) == [b"3", b"4", b"5"]
        assert values(await handle.read_key(0, b"key", offsets[0])) == [b"3", b"4", b"5"]
        assert values(await handle.read_key(0, b"gone")) == [b"old"]
    await log.truncate(0, keep)
    for handle in (log, other):
        assert await handle.read_key(0, b"gone") == []
        assert values(await handle.read_key(0, b"key")) == [b"5"]


async def test_conditions_after_a_truncation(open_log: OpenLog) -> None:
    """A key with nothing left is a new key; one whose last record is left goes on from it."""
    log, other = await open_log(), await open_log()
    for handle, key in ((log, b"a"), (other, b"b")):
        await put(handle, b"old", key=key)
    (kept,) = await put(log, b"kept")
    for handle in (log, other):
        # So that both know every key before the truncation.
        await settled(handle, Probe(b"x", key=b"c"))
    await log.truncate(0, kept)
    cursor = Cursor(kept)
    probes = await settled(other, Probe(b"next", expect=cursor), Probe(b"last", expect=cursor))
    assert values(await log.read_key(0, b"key")) == [b"kept", b"next", b"last"]
    assert cursor.offset == probes[1].offset
    for handle, key in ((other, b"a"), (log, b"b")):
        (probe,) = await settled(handle, Probe(b"new", key=key, expect=Cursor(NONE)))
        assert probe.offset > kept
        assert values(await handle.read_key(0, key)) == [b"new"]


async def test_a_tail_that_is_overtaken_by_a_truncation_says_so(log: Log) -> None:
    start = (await log.ends())[0]
    tail = log.tail(0, start)
    await put(log, b"1")
    assert values(await take(tail, 1)) == [b"1"]
    await put(log, b"2", b"3")
    await log.truncate(0, (await log.ends())[0])
    # What was fetched before the truncation may still come; after it there is a named error.
    with pytest.raises(HistoryTruncated):
        await take(log.tail(0, start), 1)
    await put(log, b"4")
    assert values(await everything(log)) == [b"4"]
    await tail.aclose()  # type: ignore[attr-defined]
