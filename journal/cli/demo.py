"""`journal demo`: an agent is killed in the middle of a step, resumed, and finishes.

The agent is a process of its own (`python -m journal.cli.demo AGENT...`) with scripted decisions
and real tools. The parent kills it with SIGKILL, starts it again, then runs the projector and
one SQL query as child processes. Knows the public API only.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import journal
from journal.errors import JournalError
from journal.events import Decision, ToolCall, Usage
from journal.kafka_config import load

QUESTION = "Which of three notes is the longest, and how long are they together?"
NOTES = {
    "alpha.txt": "Append first, act second.\n" * 12,
    "beta.txt": "A fold is a fact about a log.\n" * 30,
    "gamma.txt": "Replay beats remembering.\n" * 7,
}
SQL = (
    "SELECT step_index, tool_name, status, result FROM tool_calls "
    "WHERE task_id = '{task}' ORDER BY step_index, position"
)


# --- the agent --------------------------------------------------------------------------------


def script(step_index: int) -> Decision:
    """What the model would say, step by step."""
    names = sorted(NOTES)
    usage = Usage(input_tokens=900 + 150 * step_index, output_tokens=40)
    if step_index < len(names):
        call = ToolCall("count_words", {"note": names[step_index]})
        return Decision(f"Count {names[step_index]}.", [call], usage)
    if step_index == len(names):
        call = ToolCall("write_report", {"title": "Words in three notes"})
        return Decision("Write the report.", [call], usage)
    return Decision("beta.txt is the longest; the report is written.", usage=usage)


def tools(folder: Path) -> dict[str, Callable[..., Any]]:
    """The agent's tools, on the notes in `folder`. `DEMO_PAUSE` makes `write_report` stop, for
    ever, after it has begun."""

    def count_words(note: str) -> int:
        return len((folder / note).read_text().split())

    def write_report(title: str) -> str:
        if os.environ.get("DEMO_PAUSE"):
            say("   step 3: write_report is running …")
            print("PAUSED", flush=True)
            signal.pause()
        lines = [f"{name}: {count_words(name)}" for name in sorted(NOTES)]
        (folder / "report.txt").write_text("\n".join([title, *lines]) + "\n")
        return f"{len(lines)} lines"

    return {"count_words": count_words, "write_report": write_report}


async def agent(j: journal.Journal, task_id: str, tools: Mapping[str, Callable[..., Any]]) -> None:
    """Run the task to its end, wherever it stands."""
    async with j.task(task_id, QUESTION, agent_name="demo") as task:
        if task.resumed is not None:
            say(f"   {task.resumed}")
        while task.running:
            async with task.step() as step:

                def model(index: int = step.index) -> Decision:
                    say(f"   step {index}: the model is asked")
                    return script(index)

                reply = await step.decide(model)
                for call in reply.tool_calls:
                    result = await step.call(tools[call.name], **call.arguments)
                    say(f"   step {step.index}: {call.name} -> {result}")
                if not reply.tool_calls:
                    await task.complete(reply.text)


async def process(url: str, task_id: str, folder: Path, config: str | None) -> None:
    """What the agent's process does."""
    kafka = load(config) if config else None
    async with journal.connect(url, kafka_config=kafka, create=True) as j:
        await agent(j, task_id, tools(folder))


def say(text: str) -> None:
    print(text, flush=True)


# --- the show -----------------------------------------------------------------------------------


def demo(url: str | None, config: str | None, keep: bool) -> int:
    """Run the demo; returns the exit status. A process of it that failed has said why."""
    folder = Path(tempfile.mkdtemp(prefix="journal-demo-"))
    try:
        for note, text in NOTES.items():
            (folder / note).write_text(text)
        return _show(url or str(folder / "journal.db"), journal.new_task_id(), folder, config)
    finally:
        if keep:
            say(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _show(log: str, task_id: str, folder: Path, config: str | None) -> int:
    command = [sys.executable, "-m", "journal.cli.demo", log, task_id, str(folder), config or ""]
    say(f"1. An agent works on {task_id}")
    if not _killed(command):
        return 1
    say("2. kill -9, in the middle of step 3")
    say("3. A new process resumes it")
    if subprocess.run(command).returncode:
        return 1
    say("4. The projector folds the log into DuckDB; SQL over the run:")
    projector = [
        sys.executable,
        "-c",
        "import sys; from projector.cli import main; sys.exit(main())",
    ]
    options = ["--db", str(folder / "runs.duckdb")]
    source = ["--log", log, *(["--kafka-config", config] if config else [])]
    if subprocess.run([*projector, "run", "--once", *source, *options]).returncode:
        return 1
    query = SQL.format(task=task_id)
    say(f"   {query}")
    return subprocess.run([*projector, "sql", query, *options]).returncode


def _killed(command: list[str]) -> bool:
    """Whether the agent came as far as step 3."""
    agent = subprocess.Popen(
        command, env=os.environ | {"DEMO_PAUSE": "1"}, stdout=subprocess.PIPE, text=True
    )
    assert agent.stdout is not None
    paused = False
    for line in agent.stdout:
        paused = line.strip() == "PAUSED"
        if paused:
            break
        say(line.rstrip())
    agent.send_signal(signal.SIGKILL)
    agent.wait()
    return paused


if __name__ == "__main__":
    try:
        asyncio.run(process(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4] or None))
    except (JournalError, OSError) as error:
        print(f"journal: {error}", file=sys.stderr)
        sys.exit(1)
