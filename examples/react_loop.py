"""A ReAct loop. Kill it anywhere and run it again: it goes on at the step where it was.

With OPENAI_API_KEY set (and `pip install openai`) a real model decides, else a scripted one.
Usage: python examples/react_loop.py [LOG]
"""

import asyncio
import os
import sys

import journal
from journal import Decision, ToolCall, Usage

WORDS = {
    "type": "function",
    "function": {
        "name": "count_words",
        "parameters": {"type": "object", "properties": {"text": {"type": "string"}}},
    },
}


@journal.tool(effect="none")
def count_words(text: str) -> int:
    return len(text.split())


async def real(messages: list[dict]) -> object:
    from openai import AsyncOpenAI

    model = os.environ.get("OPENAI_MODEL", "gpt-5-mini")
    client = AsyncOpenAI()
    return await client.chat.completions.create(model=model, messages=messages, tools=[WORDS])


def scripted(messages: list[dict]) -> Decision:
    counts = [m["content"] for m in messages if m["role"] == "tool"]
    if counts:
        return Decision(f"It has {counts[0]} words.", usage=Usage(input_tokens=60))
    asked = ToolCall("count_words", {"text": "every step is an event"}, "call_1")
    return Decision("Let me count.", [asked], Usage(input_tokens=40, output_tokens=12))


async def main(log: str) -> None:
    model = real if os.environ.get("OPENAI_API_KEY") else scripted
    question = "How many words has 'every step is an event'?"
    async with journal.connect(log) as j, j.task("react-1", question) as task:
        while task.running:
            async with task.step() as step:
                reply = await step.decide(model, task.messages("openai"))
                for call in reply.tool_calls:
                    await step.call(count_words, **call.arguments)
                if not reply.tool_calls:
                    await task.complete(reply.text)
        print(task.final_answer)


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "journal.db"))
