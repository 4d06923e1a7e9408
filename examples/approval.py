"""Approval by a person: the task waits, for days and across restarts, until somebody answers.

Usage: python examples/approval.py [LOG]
then, from another terminal: journal answer refund-1 true --log LOG
"""

import asyncio
import sys

import journal
from journal.errors import AskTimedOut


@journal.tool(effect="once", on_uncertain="ask")
def refund(amount: int, idempotency_key: str) -> str:
    return f"refunded {amount}"


async def main(log: str) -> None:
    async with journal.connect(log) as j, j.task("refund-1", "Refund 40 euros") as task:
        if task.running:
            print("waiting for an answer", flush=True)
            try:
                approved = await task.ask(
                    "Refund 40 euros?", schema={"type": "boolean"}, timeout=7 * 24 * 3600.0
                )
            except AskTimedOut:
                approved = False
            if approved:
                async with task.step() as step:
                    await task.complete(await step.call(refund, amount=40))
            else:
                await task.complete("not refunded")
        print(task.final_answer)


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "journal.db"))
