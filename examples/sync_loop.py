"""A synchronous loop that was there before, with three lines added (marked +).

Usage: python examples/sync_loop.py [LOG]
"""

import sys

from journal import Decision, ToolCall, sync


def model(messages: list[dict]) -> Decision:
    done = sum(m["role"] == "tool" for m in messages)
    if done == 3:
        return Decision("All three are read.")
    return Decision(f"Read {done}.", [ToolCall("read", {"n": done})])


def read(n: int) -> str:
    print(f"reading {n}")
    return f"contents of {n}"


def main(log: str) -> None:
    with sync.connect(log) as j, j.task("loop-1", "Read three files") as task:  # +
        while task.running:
            with task.step() as step:  # +
                reply = step.decide(model, task.messages())  # was: reply = model(history)
                for call in reply.tool_calls:
                    step.call(read, **call.arguments)  # was: history.append(read(**arguments))
                if not reply.tool_calls:
                    task.complete(reply.text)  # +
        print(task.final_answer)


main(sys.argv[1] if len(sys.argv) > 1 else "journal.db")
