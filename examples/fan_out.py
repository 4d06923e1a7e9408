"""Fan-out: 50 sub-tasks, ten at a time, each with a journal of its own.

Usage: python examples/fan_out.py [LOG]
"""

import asyncio
import sys

import journal


async def research(child: journal.Task, city: int) -> int:
    """A child may have steps, tools and sub-tasks like any other task."""
    return await child.run(population, city)


def population(city: int) -> int:
    return 1_000 * city


async def main(log: str) -> None:
    async with journal.connect(log) as j:
        async with j.task("cities-1", "Add up 50 cities") as task:
            if task.running:
                calls = (task.subtask(f"city_{n}", research, n) for n in range(50))
                await task.complete(sum(await task.gather(*calls, limit=10)))
            print(f"{task.final_answer} people")
        print(f"{len(await j.tasks(status='completed'))} tasks completed")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "journal.db"))
