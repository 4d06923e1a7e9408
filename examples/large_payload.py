"""A payload of 20 MB: it goes to the blob store, the event holds its hash, nothing is cut short.

Usage: python examples/large_payload.py [LOG]
"""

import asyncio
import sys

import journal


def scrape() -> str:
    print("scraping")
    return "0123456789abcdef" * (20 * 1024 * 1024 // 16)


async def main(log: str) -> None:
    async with journal.connect(log) as j:
        async with j.task("scrape-1", "Fetch a large page") as task:
            page = await task.run(scrape)
            if task.running:
                await task.complete(f"{len(page):,} characters")
            print(task.final_answer)
        largest = max([len(bytes(e.body)) async for _, e in j.events("scrape-1")])
        print(f"the largest event has {largest} bytes")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "journal.db"))
