"""Durable functions: each runs once, also when the program is killed and run again.

Usage: python examples/durable_functions.py [LOG]
"""

import asyncio
import sys

import journal


async def fetch(page: int) -> list[int]:
    print(f"fetching page {page}")
    return list(range(page * 3, page * 3 + 3))


def add(numbers: list[int]) -> int:
    print("adding")
    return sum(numbers)


async def main(log: str) -> None:
    async with journal.connect(log) as j, j.task("pages-1", "Add up the pages") as task:
        if task.running:
            began = await task.now()  # the same time on every run
            pages = await task.gather(*(task.run(fetch, n) for n in range(4)), limit=2)
            total = await task.run(add, [number for page in pages for number in page])
            await task.complete({"total": total, "began": began.isoformat()})
        print(f"total {task.final_answer['total']}")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "journal.db"))
