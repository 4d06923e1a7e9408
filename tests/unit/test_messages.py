"""A run's history in three styles: the order of things, and pairs of calls and results."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Raw

from journal.errors import UsageError
from journal.messages import messages
from journal.state import TaskState
from journal.values import BlobRef, blob_payload, encode, encode_value
from tests.folding import Task

Dict = dict[str, Any]


def say(text: str | None, *calls: Dict) -> Dict:
    decision: Dict = {} if text is None else {"text": text}
    return decision | ({"tool_calls": list(calls)} if calls else {})


def recorded(task: Task, index: int, decision: Dict, *results: Any, **body: Any) -> None:
    """A finished step; a result that is an exception is an error."""
    outcomes = [
        {"error": str(r), "error_type": "E"}
        if isinstance(r, Exception)
        else {"result": encode_value(r)}
        for r in results
    ]
    body = {"decision": decision, "calls": outcomes, **body}
    assert task.did("StepCompleted", step_index=index, **body) == ""


def call(name: str, arguments: Any = ..., id: str | None = None) -> Dict:
    out: Dict = {"tool_name": name}
    if arguments is not ...:
        out["arguments"] = arguments
    return out if id is None else out | {"tool_call_id": id}


def order(state: TaskState) -> list[str]:
    """The contents, in order; an assistant's is its text."""
    return [m["content"] for m in messages(state, "plain")]


# --- the order ------------------------------------------------------------------------------------


def test_the_description_opens_the_history() -> None:
    task = Task(description="do it")
    assert messages(task.state) == [{"role": "user", "content": "do it"}]
    recorded(task, 0, say("ok"))
    task.put(task.message("and?"))
    assert order(task.state) == ["do it", "Thought: ok", "and?"]


def test_a_message_before_step_0_opens_it_instead() -> None:
    task = Task()
    hello = task.message("hello")
    task.put(hello)
    assert order(task.state) == ["hello"]
    # The model failed: what the next attempt is shown is what this one was shown.
    task.did("StepFailed", step_index=0, error_type="E", error="no")
    assert order(task.state) == ["hello"]
    recorded(task, 0, say("hi"), last_message=hello.id)
    assert order(task.state) == ["hello", "Thought: hi"]


def test_a_decision_stands_behind_the_last_message_that_it_saw() -> None:
    task = Task(description="d")
    a, b, c = (task.message(text) for text in "abc")
    task.put(a)
    task.did("StepStarted", step_index=0, decision=say("0", call("x")), last_message=a.id)
    task.put(b, c)
    task.did("ToolCallCompleted", step_index=0, position=0, result="r0")
    task.did("StepCompleted", step_index=0)
    # b and c came while step 0 ran: they stand behind its result.
    assert order(task.state) == ["a", "Thought: 0\nAction: x({})", "Observation: r0", "b", "c"]
    recorded(task, 1, say("1"), last_message=b.id)
    assert order(task.state)[3:] == ["b", "Thought: 1", "c"]
    recorded(task, 2, say("2"), last_message=b.id)
    recorded(task, 3, say("3"), last_message=c.id)
    recorded(task, 4, say("4"), last_message=a.id)
    recorded(task, 5, say("5"))
    want = ["b", "Thought: 1", "Thought: 2", "c", "Thought: 3", "Thought: 4", "Thought: 5"]
    assert order(task.state)[3:] == want


def test_steps_stand_by_index_whatever_the_order_of_the_log() -> None:
    task = Task(description="d")
    for index in (2, 0, 1):
        recorded(task, index, say(str(index)))
    assert order(task.state) == ["d", "Thought: 0", "Thought: 1", "Thought: 2"]


def test_a_message_that_no_step_saw_stands_last() -> None:
    task = Task(description="d")
    task.put(task.message("late"))
    recorded(task, 0, say("0"))
    assert order(task.state) == ["d", "Thought: 0", "late"]


# --- the three styles ----------------------------------------------------------------------


@pytest.fixture
def weather() -> TaskState:
    task = Task(description="the weather?")
    recorded(
        task,
        0,
        say("two cities", call("get", {"city": "Rom", "$$x": 1}, "c1"), call("get", "Oslo", "c2")),
        {"$deg": 20},
        ValueError("no such city"),
    )
    task.did("StepStarted", step_index=1, decision=say(None, call("get", None)))
    task.did("ToolCallStarted", step_index=1, position=0, tool_name="get", arguments_digest="d")
    return task.state


def test_openai(weather: TaskState) -> None:
    def function(arguments: str) -> Dict:
        return {"name": "get", "arguments": arguments}

    assert messages(weather, "openai") == [
        {"role": "user", "content": "the weather?"},
        {
            "role": "assistant",
            "content": "two cities",
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": function('{"city":"Rom","$x":1}'),
                },
                {"id": "c2", "type": "function", "function": function("Oslo")},
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"$deg":20}'},
        {"role": "tool", "tool_call_id": "c2", "content": "no such city"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1_0", "type": "function", "function": function("{}")}],
        },
    ]
    assert messages(weather) == messages(weather, "openai")


def test_anthropic(weather: TaskState) -> None:
    def use(id: str, input: Any) -> Dict:
        return {"type": "tool_use", "id": id, "name": "get", "input": input}

    assert messages(weather, "anthropic") == [
        {"role": "user", "content": "the weather?"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "two cities"},
                use("c1", {"city": "Rom", "$x": 1}),
                use("c2", {"arguments": "Oslo"}),
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "c1", "content": '{"$deg":20}'},
                {
                    "type": "tool_result",
                    "tool_use_id": "c2",
                    "content": "no such city",
                    "is_error": True,
                },
            ],
        },
        {"role": "assistant", "content": [use("call_1_0", {})]},
    ]


def test_plain(weather: TaskState) -> None:
    assert messages(weather, "plain") == [
        {"role": "user", "content": "the weather?"},
        {
            "role": "assistant",
            "content": 'Thought: two cities\nAction: get({"city":"Rom","$x":1})\nAction: get(Oslo)',
        },
        {"role": "user", "content": 'Observation: {"$deg":20}\nObservation: no such city'},
        {"role": "assistant", "content": "Action: get({})"},
    ]


def test_another_style_is_refused() -> None:
    with pytest.raises(UsageError, match="'xml'; there are anthropic, openai, plain"):
        messages(TaskState("t"), "xml")


# --- the hard cases of the field ----------------------------------------------------------


def ids(state: TaskState) -> tuple[list[str], list[str]]:
    """Ids of calls, and ids that results name, in OpenAI's style."""
    history = messages(state, "openai")
    asked = [c["id"] for m in history for c in m.get("tool_calls", [])]
    return asked, [m["tool_call_id"] for m in history if m["role"] == "tool"]


def test_an_id_that_a_step_uses_twice_is_replaced_in_call_and_result() -> None:
    task = Task()
    for index in (0, 1):
        recorded(task, index, say("", call("a", {}, "c"), call("b", {}, "c"), call("d")), 1, 2, 3)
    asked, answered = ids(task.state)
    assert asked == answered == ["c", "call_0_1", "call_0_2", "c", "call_1_1", "call_1_2"]


def test_calls_without_results_and_results_without_calls() -> None:
    task = Task(description="d")
    recorded(task, 0, say("", call("a", {}, "c1"), call("b", {}, "c2")), "only the first")
    result = task.message("stray", role="tool")
    task.put(result)
    # An API refuses a call that nothing answers.
    assert ids(task.state) == (["c1", "c2"], ["c1", "c2", None])
    answers = [m["content"] for m in messages(task.state) if m["role"] == "tool"]
    assert answers == ["only the first", "No result was recorded.", "stray"]
    assert messages(task.state, "anthropic")[-1]["content"] == [
        {"type": "tool_result", "tool_use_id": None, "content": "stray"}
    ]


def test_a_null_result_is_a_result_and_null_content_stays_null() -> None:
    task = Task(description="d")
    recorded(task, 0, say(None, call("a", {}, "c")), None)
    assert messages(task.state, "openai")[1:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "a", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c", "content": "null"},
    ]
    task.put(task.message(None))  # type: ignore[arg-type]
    assert messages(task.state, "openai")[-1] == {"role": "user", "content": None}


def test_an_error_that_was_mended_is_not_shown() -> None:
    task = Task(description="d")
    task.did("StepStarted", step_index=0, decision=say("", call("a", {}, "c")))
    task.called()
    task.did("ToolCallFailed", step_index=0, position=0, error_type="E", error="first")
    assert ids(task.state) == (["c"], [])
    task.called()
    task.put(task.claim())
    task.did("CallResolved", step_index=0, position=0, result="it was done")
    assert messages(task.state)[-1] == {
        "role": "tool",
        "tool_call_id": "c",
        "content": "it was done",
    }
    assert "is_error" not in messages(task.state, "anthropic")[-1]["content"][0]


def test_a_step_of_version_1_is_a_thought_with_one_call() -> None:
    task = Task(description="d")
    task.put(
        task.own(
            "StepCompleted",
            1,
            step_index=0,
            thought="look",
            tool_name="read",
            tool_args={"p": 1},
            observation="seen",
            tokens_used=5,
        ),
        task.own("StepCompleted", 1, step_index=1, thought=None, observation="out of nowhere"),
        task.own("StepCompleted", 1, step_index=2, thought="done"),
    )
    assert order(task.state) == [
        "d",
        'Thought: look\nAction: read({"p":1})',
        "Observation: seen",
        "Action: ({})",
        "Observation: out of nowhere",
        "Thought: done",
    ]
    assert ids(task.state) == (["call_0_0", "call_1_0"], ["call_0_0", "call_1_0"])
    assert task.state.total_tokens == 5


def test_messages_keep_role_name_and_parts() -> None:
    task = Task()
    parts = [{"type": "text", "text": "x"}]
    event = task._envelope(
        "MessageReceived",
        None,
        {"role": "system", "content": parts, "name": "ops"},
        ref=task.run_id,
    )
    task.put(event)
    assert messages(task.state, "openai") == [{"role": "system", "content": parts, "name": "ops"}]
    assert messages(task.state, "anthropic") == [{"role": "system", "content": parts}]
    assert order(task.state) == ['[{"type":"text","text":"x"}]']


def test_what_is_kept_elsewhere_is_loaded_in_every_style() -> None:
    stored = {
        name: (BlobRef(name * 64, 1), bytes(encode_value(value)))
        for name, value in {"a": "text", "b": {"$k": 1}, "c": "result", "d": "message"}.items()
    }
    ref = {name: Raw(bytes(blob_payload(r))) for name, (r, _) in stored.items()}
    task = Task(description="d")
    decision = say(None, call("x", ref["b"], "i")) | {"text": ref["a"]}
    task.did("StepStarted", step_index=0, decision=decision)
    task.did("ToolCallCompleted", step_index=0, position=0, result=ref["c"])
    task.put(task.message(ref["d"]))  # type: ignore[arg-type]

    def load(wanted: BlobRef) -> bytes:
        return stored[wanted.sha256[0]][1]

    for style in ("openai", "anthropic", "plain"):
        told = encode(messages(task.state, style, load)).decode()
        assert "blob" not in told
        assert "$$k" not in told
        assert all(word in told for word in ('"message"', "text", "$k", "result"))
