-- The projection's tables. No primary keys and no indexes: the fold has removed doubles
-- already, and keys cost DuckDB more than the scans that they save.
-- Payloads are JSON text (VARCHAR, not JSON: that type costs twice the time to insert, and
-- refuses some of what was lawfully written). Times are UTC; NULL where no time was given or
-- it was none. A change here is a change of VERSION in store_schema.py: rebuild, never migrate.

CREATE TABLE tasks (
    task_id VARCHAR, parent_task_id VARCHAR, agent_name VARCHAR, description VARCHAR,
    status VARCHAR, current_step BIGINT,
    input_tokens BIGINT, output_tokens BIGINT, total_tokens BIGINT,
    started_at TIMESTAMP, updated_at TIMESTAMP, ended_at TIMESTAMP,
    final_answer VARCHAR, error_type VARCHAR, error VARCHAR, results VARCHAR, imported BOOLEAN,
    epoch BIGINT, owner VARCHAR, seq BIGINT, last_id VARCHAR, claim_id VARCHAR, run_id VARCHAR,
    ending_id VARCHAR, epoch_closed BOOLEAN, parent_epoch BIGINT, cancel_requested BOOLEAN,
    chain VARCHAR,
    "partition" INTEGER, first_offset BIGINT, last_offset BIGINT
);
COMMENT ON TABLE tasks IS 'One row a task: what it has come to, and all that decides which events of it count.';
COMMENT ON COLUMN tasks.task_id IS 'The id that its agent gave it.';
COMMENT ON COLUMN tasks.parent_task_id IS 'The task that started this one as a sub-task.';
COMMENT ON COLUMN tasks.agent_name IS 'The agent that began it or claimed it last.';
COMMENT ON COLUMN tasks.description IS 'What was asked for.';
COMMENT ON COLUMN tasks.status IS 'submitted, running, waiting, completed, failed, cancelled or expired.';
COMMENT ON COLUMN tasks.current_step IS 'The lowest step index that is not completed; counts from 0.';
COMMENT ON COLUMN tasks.input_tokens IS 'Tokens read by models, cached ones included.';
COMMENT ON COLUMN tasks.output_tokens IS 'Tokens written by models.';
COMMENT ON COLUMN tasks.total_tokens IS 'Input and output together; the source''s own total where it knew nothing finer.';
COMMENT ON COLUMN tasks.started_at IS 'When it began, UTC, as its events say.';
COMMENT ON COLUMN tasks.updated_at IS 'The time in its latest event, UTC.';
COMMENT ON COLUMN tasks.ended_at IS 'The time in the event that ended it, UTC.';
COMMENT ON COLUMN tasks.final_answer IS 'The answer: a text as it is, any other value as JSON.';
COMMENT ON COLUMN tasks.error_type IS 'Why it failed, as a type''s name.';
COMMENT ON COLUMN tasks.error IS 'Why it failed or was cancelled, in words.';
COMMENT ON COLUMN tasks.results IS 'The accumulated results: a JSON object by name.';
COMMENT ON COLUMN tasks.imported IS 'True while it is only the import of a run that happened elsewhere.';
COMMENT ON COLUMN tasks.epoch IS 'The number of its latest claim.';
COMMENT ON COLUMN tasks.owner IS 'The nonce of that claim.';
COMMENT ON COLUMN tasks.seq IS 'The number of the owner''s latest accepted event.';
COMMENT ON COLUMN tasks.last_id IS 'The id of that event.';
COMMENT ON COLUMN tasks.claim_id IS 'The id of the event that won the latest claim.';
COMMENT ON COLUMN tasks.run_id IS 'The id of the event that created or last reopened it.';
COMMENT ON COLUMN tasks.ending_id IS 'The id of the event that ended it.';
COMMENT ON COLUMN tasks.epoch_closed IS 'True after a conflict or a gap: nothing of its owner counts until a new claim.';
COMMENT ON COLUMN tasks.parent_epoch IS 'Of a sub-task: the parent''s epoch at its latest claim.';
COMMENT ON COLUMN tasks.cancel_requested IS 'True when somebody has asked to cancel it.';
COMMENT ON COLUMN tasks.chain IS 'SHA-256 over the ids of all events that moved it, in hex.';
COMMENT ON COLUMN tasks."partition" IS 'The log''s partition that it lives in.';
COMMENT ON COLUMN tasks.first_offset IS 'The offset of its first accepted event.';
COMMENT ON COLUMN tasks.last_offset IS 'The offset of the last event that changed it.';

CREATE TABLE steps (
    task_id VARCHAR, step_index BIGINT, attempt BIGINT, status VARCHAR,
    thought VARCHAR, request_model VARCHAR,
    input_tokens BIGINT, output_tokens BIGINT, cache_read_input_tokens BIGINT,
    cache_creation_input_tokens BIGINT, reasoning_output_tokens BIGINT, total_tokens BIGINT,
    started_at TIMESTAMP, completed_at TIMESTAMP,
    "partition" INTEGER, first_offset BIGINT, last_offset BIGINT
);
COMMENT ON TABLE steps IS 'One row a step: one turn of the agent, with its decision.';
COMMENT ON COLUMN steps.task_id IS 'The task.';
COMMENT ON COLUMN steps.step_index IS 'Its number in the task; counts from 0.';
COMMENT ON COLUMN steps.attempt IS 'Counts from 1; only a failure raises it.';
COMMENT ON COLUMN steps.status IS 'open, failed (the next attempt has not begun) or completed.';
COMMENT ON COLUMN steps.thought IS 'What the model said: a text as it is, a reference to a blob as JSON.';
COMMENT ON COLUMN steps.request_model IS 'The model that was asked.';
COMMENT ON COLUMN steps.input_tokens IS 'Tokens read, cached ones included.';
COMMENT ON COLUMN steps.output_tokens IS 'Tokens written.';
COMMENT ON COLUMN steps.cache_read_input_tokens IS 'Of the input: read from a cache.';
COMMENT ON COLUMN steps.cache_creation_input_tokens IS 'Of the input: written to a cache.';
COMMENT ON COLUMN steps.reasoning_output_tokens IS 'Of the output: hidden reasoning.';
COMMENT ON COLUMN steps.total_tokens IS 'Input and output together; the source''s own total where it knew nothing finer.';
COMMENT ON COLUMN steps.started_at IS 'When it began, UTC, as its events say.';
COMMENT ON COLUMN steps.completed_at IS 'When it was completed, UTC, as its events say.';
COMMENT ON COLUMN steps."partition" IS 'The log''s partition.';
COMMENT ON COLUMN steps.first_offset IS 'The offset of the first event about it.';
COMMENT ON COLUMN steps.last_offset IS 'The offset of the last event about it.';

CREATE TABLE tool_calls (
    task_id VARCHAR, step_index BIGINT, attempt BIGINT, "position" BIGINT,
    tool_name VARCHAR, tool_call_id VARCHAR, effect VARCHAR, status VARCHAR,
    arguments VARCHAR, result VARCHAR, error_type VARCHAR, error VARCHAR,
    started_at TIMESTAMP, completed_at TIMESTAMP,
    "partition" INTEGER, first_offset BIGINT, last_offset BIGINT
);
COMMENT ON TABLE tool_calls IS 'One row a tool call, known by task, step and position.';
COMMENT ON COLUMN tool_calls.task_id IS 'The task.';
COMMENT ON COLUMN tool_calls.step_index IS 'The step that asked for it.';
COMMENT ON COLUMN tool_calls.attempt IS 'The step''s attempt in which it last ran.';
COMMENT ON COLUMN tool_calls."position" IS 'Its place in the step''s decision; counts from 0.';
COMMENT ON COLUMN tool_calls.tool_name IS 'The tool.';
COMMENT ON COLUMN tool_calls.tool_call_id IS 'The model''s own id for it; may repeat within a task.';
COMMENT ON COLUMN tool_calls.effect IS 'idempotent, once or none; NULL where it was only recorded.';
COMMENT ON COLUMN tool_calls.status IS 'pending, started, uncertain, completed or failed.';
COMMENT ON COLUMN tool_calls.arguments IS 'What it was called with, JSON.';
COMMENT ON COLUMN tool_calls.result IS 'What it returned, JSON.';
COMMENT ON COLUMN tool_calls.error_type IS 'The type of its latest error.';
COMMENT ON COLUMN tool_calls.error IS 'Its latest error in words.';
COMMENT ON COLUMN tool_calls.started_at IS 'When it was last started, UTC, as its events say.';
COMMENT ON COLUMN tool_calls.completed_at IS 'When it last ended, UTC, as its events say.';
COMMENT ON COLUMN tool_calls."partition" IS 'The log''s partition.';
COMMENT ON COLUMN tool_calls.first_offset IS 'The offset of the first event about its step.';
COMMENT ON COLUMN tool_calls.last_offset IS 'The offset of the last event about its step.';

CREATE TABLE events (
    "partition" INTEGER, "offset" BIGINT, task_id VARCHAR, type VARCHAR, v BIGINT, id VARCHAR,
    epoch BIGINT, owner VARCHAR, seq BIGINT, ref VARCHAR, "at" VARCHAR, traceparent VARCHAR,
    body VARCHAR
);
COMMENT ON TABLE events IS 'Every accepted event, as it was written.';
COMMENT ON COLUMN events."partition" IS 'The log''s partition.';
COMMENT ON COLUMN events."offset" IS 'Its place in the partition.';
COMMENT ON COLUMN events.task_id IS 'The task.';
COMMENT ON COLUMN events.type IS 'The event''s type.';
COMMENT ON COLUMN events.v IS 'The version of its body.';
COMMENT ON COLUMN events.id IS 'Its own id, minted once.';
COMMENT ON COLUMN events.epoch IS 'Of claims and owner''s events: the number of the claim.';
COMMENT ON COLUMN events.owner IS 'Of claims and owner''s events: the claim''s nonce.';
COMMENT ON COLUMN events.seq IS 'Of owner''s events: their number, from 1, running on across epochs.';
COMMENT ON COLUMN events.ref IS 'The id of the event that this one is about.';
COMMENT ON COLUMN events."at" IS 'When it was written: RFC 3339, UTC, by the writer''s clock.';
COMMENT ON COLUMN events.traceparent IS 'W3C trace context: the trace and the span that it was written in.';
COMMENT ON COLUMN events.body IS 'Its body as written: JSON in the shape of (type, v).';

CREATE TABLE anomalies (
    "partition" INTEGER, "offset" BIGINT, task_id VARCHAR, type VARCHAR, id VARCHAR,
    epoch BIGINT, owner VARCHAR, seq BIGINT, label VARCHAR, detail VARCHAR, raw BLOB
);
COMMENT ON TABLE anomalies IS 'Every record that does not count, or counts but does not fit, and why.';
COMMENT ON COLUMN anomalies."partition" IS 'The log''s partition.';
COMMENT ON COLUMN anomalies."offset" IS 'Its place in the partition.';
COMMENT ON COLUMN anomalies.task_id IS 'The task, where the record names one.';
COMMENT ON COLUMN anomalies.type IS 'The event''s type, where it is an event.';
COMMENT ON COLUMN anomalies.id IS 'The event''s id.';
COMMENT ON COLUMN anomalies.epoch IS 'The claim that it was written under.';
COMMENT ON COLUMN anomalies.owner IS 'That claim''s nonce.';
COMMENT ON COLUMN anomalies.seq IS 'The owner''s number of it.';
COMMENT ON COLUMN anomalies.label IS 'headless, after_end, fenced, stale, duplicate, closed, conflict, gap: it does not count. out_of_place: accepted, but it does not fit. undecodable: no event. misplaced: not in its task''s partition. foreign: another journal''s genesis record.';
COMMENT ON COLUMN anomalies.detail IS 'More words on it.';
COMMENT ON COLUMN anomalies.raw IS 'The record''s value, byte for byte.';

CREATE TABLE offsets (
    "partition" INTEGER, next_offset BIGINT, last_id VARCHAR, last_checksum VARCHAR,
    journal_id VARCHAR
);
COMMENT ON TABLE offsets IS 'How far each partition has been read; committed together with the rows.';
COMMENT ON COLUMN offsets."partition" IS 'The log''s partition.';
COMMENT ON COLUMN offsets.next_offset IS 'The first offset that has not been read.';
COMMENT ON COLUMN offsets.last_id IS 'The id of the last event read, where the last record was one.';
COMMENT ON COLUMN offsets.last_checksum IS 'SHA-256 of the last record''s value, in hex.';
COMMENT ON COLUMN offsets.journal_id IS 'The journal, from its genesis record.';
