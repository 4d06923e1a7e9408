"""Crash an agent, resume it until it ends, and say what is wrong with how it got there.

Knows lives, points, states and counted runs; knows nothing of pytest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from journal.errors import UsageError
from journal.finding import every_state
from journal.memory_log import Memory
from journal.state import Call, Step, TaskState
from journal.testing.effects import Run, reruns
from journal.testing.lives import Agent, Life
from journal.testing.points import Point, crash_after, crash_before

_SHOWN = 5


@dataclass
class Outcome:
    """What became of an agent. `value` is what its last life returned."""

    value: Any
    states: dict[str, TaskState]
    lives: list[Life]
    log: Memory

    @property
    def state(self) -> TaskState:
        """The state of the only task. Raises `UsageError` where there are several, or none."""
        if len(self.states) != 1:
            raise UsageError(f"there are {len(self.states)} tasks, not one; look into `states`")
        return next(iter(self.states.values()))

    @property
    def crashes(self) -> list[str]:
        """What each crash was, such as "crash before append 3, ToolCallCompleted of step 0"."""
        return [str(life.dead) for life in self.lives if life.dead is not None]

    @property
    def runs(self) -> list[Run]:
        """Every run of a counted tool, in order."""
        return [run for life in self.lives for run in life.runs]

    def reruns(self, step: int | None = None) -> list[str]:
        """What ran again without need, a line each; of one step, or of all."""
        runs = [run for run in self.runs if step in (None, run.step)]
        return reruns(runs, self._recorded())

    def assert_not_rerun(self, step: int | None = None) -> None:
        """No counted tool of the step (of any, without one) ran again, except where a crash came
        before the log could know its outcome; one declared `once` not even then.

        Raises `AssertionError`, which names what ran, how often and in which lives; and where no
        counted tool ran at all, for then this would hold whatever happened.
        """
        where = "" if step is None else f" in step {step}"
        if not any(step in (None, run.step) for run in self.runs):
            raise AssertionError(f"no counted tool ran{where}; wrap it: testing.counted(tool)")
        lines = self.reruns(step)
        if lines:
            raise AssertionError("\n".join([*self.crashes, *lines]))

    def _recorded(self) -> Counter[str]:
        """How often the log has each call: the same one may be asked for twice in a step."""
        return Counter(
            str(Run(call.tool_name, "", msgspec.json.decode(call.arguments), step.index, None))
            for state in self.states.values()
            for step in state.steps.values()
            for call in step.all_calls()
            if call.arguments is not None
        )


async def run_with_crashes(
    agent: Agent, at: Sequence[Point] = (), *, log: Memory | None = None
) -> Outcome:
    """Run the agent and resume it after each crash, until it ends.

        outcome = await run_with_crashes(agent, at=[crash_at(step=3)])
        assert outcome.state.status == "completed"
        outcome.assert_not_rerun()

    agent  a function of an open `Journal`; each life calls it anew
    at     the first point kills the first life, the second the second; the last life is spared
    log    where it runs; by default a log of its own

    Raises `AssertionError` where a life ends before its point comes; what the agent raises.
    """
    log = log or Memory()
    lives: list[Life] = []
    value = None
    for number, point in enumerate((*at, None), 1):
        life = Life(number, point)
        lives.append(life)
        value = await life.run(agent, log)
        if point is not None and life.dead is None:
            written = ", ".join(life.events) or "nothing"
            raise AssertionError(f"life {number} ended without a moment {point}: it had {written}")
    handle = log.handle()
    try:
        states = {state.task_id: state for state in await every_state(handle)}
    finally:
        await handle.close()
    return Outcome(value, states, lives, log)


@dataclass(frozen=True)
class Report:
    """What `crash_everywhere` did: at how many points it crashed, how many runs of counted tools it
    saw, and the run without a crash."""

    points: int
    counted: int
    undisturbed: Outcome


async def crash_everywhere(
    agent: Agent,
    *,
    setup: Callable[[], Any] | None = None,
    outcome: Callable[[TaskState], Any] | None = None,
) -> Report:
    """Crash the agent before and after each of its appends, one at a time, each time on a log of
    its own; resume it; and assert that no counted tool ran twice and the end is the same.

        await crash_everywhere(agent)

    agent    a function of an open `Journal`, whose tasks have fixed ids; each life calls it anew
    setup    called before each run on an empty log, to reset the world that the tools change
    outcome  from a task's state to what has to be the same; by default `final`

    Raises `AssertionError` that lists the points at which something was wrong.
    """
    look = outcome or final

    async def tried(*at: Point) -> Outcome:
        if setup is not None:
            setup()
        return await run_with_crashes(agent, at)

    calm = await tried()
    expected = Counter(str(run) for run in calm.runs)
    ends = {id: look(state) for id, state in calm.states.items()}
    appends = calm.lives[0].written
    if not appends:
        raise AssertionError("the agent appended nothing, so that there is nowhere to crash it")
    wrong: list[str] = []
    cause: Exception | None = None
    runs = len(calm.runs)
    for n in range(1, appends + 1):
        for point in (crash_before(n=n), crash_after(n=n)):
            try:
                crashed = await tried(point)
            except Exception as error:
                cause = cause or error
                event = calm.lives[0].events[n - 1]
                wrong.append(f"{point} ({event}): {type(error).__name__}: {error}")
                continue
            runs += len(crashed.runs)
            lines = reruns(crashed.runs, expected) + _differences(
                ends, {id: look(state) for id, state in crashed.states.items()}
            )
            wrong += [f"{crashed.crashes[0]}: {line}" for line in lines]
    if wrong:
        more = [f"and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else []
        heading = f"of {2 * appends} crashes, these did harm:"
        raise AssertionError("\n  ".join([heading, *wrong[:_SHOWN], *more])) from cause
    return Report(2 * appends, runs, calm)


def _differences(without: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    if without.keys() != now.keys():
        return [f"tasks {sorted(now)}, without a crash {sorted(without)}; are their ids fixed?"]
    lines = []
    for id, end in without.items():
        if isinstance(end, dict) and isinstance(now[id], dict):
            lines += [
                f"{id}: {part} is {now[id].get(part)!r}, without a crash {end[part]!r}"
                for part in end
                if end[part] != now[id].get(part)
            ]
        elif end != now[id]:
            lines.append(f"{id}: ends as {now[id]!r}, without a crash as {end!r}")
    return lines


def final(state: TaskState) -> dict[str, Any]:
    """What a crash must not change of a task: all but ids, times, claims and attempts."""
    return {
        "status": state.status,
        "error": (state.error_type, state.error),
        "final_answer": _plain(state.final_answer),
        "results": {name: _plain(raw) for name, raw in state.results.items()},
        "steps": {step.index: _step(step) for step in state.steps.values()},
        "subtasks": {s.name: (s.status, _plain(s.result)) for s in state.subtasks.values()},
    }


def _step(step: Step) -> Any:
    return step.status, _plain(step.raw_decision), [_call(call) for call in step.all_calls()]


def _call(call: Call) -> Any:
    return call.tool_name, call.status, _plain(call.arguments), _plain(call.result), call.error


def _plain(raw: Any) -> Any:
    return None if raw is None else msgspec.json.decode(raw)
