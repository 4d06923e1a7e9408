-- Views for people. Only these look at the clock.

CREATE VIEW runs AS
SELECT
    t.task_id, t.agent_name, t.status, t.description,
    coalesce(s.steps, 0) AS steps, coalesce(s.completed_steps, 0) AS completed_steps,
    coalesce(c.tool_calls, 0) AS tool_calls, coalesce(c.failed_calls, 0) AS failed_calls,
    t.input_tokens, t.output_tokens, t.total_tokens,
    t.started_at, t.updated_at, t.ended_at,
    round(epoch_ms(coalesce(t.ended_at, t.updated_at) - t.started_at) / 1000.0, 3) AS seconds,
    t.final_answer, t.error_type, t.error, t.parent_task_id, t.imported
FROM tasks AS t
LEFT JOIN (
    SELECT task_id, count(*) AS steps,
        count(*) FILTER (status = 'completed') AS completed_steps
    FROM steps GROUP BY task_id
) AS s ON s.task_id = t.task_id
LEFT JOIN (
    SELECT task_id, count(*) AS tool_calls,
        count(*) FILTER (status = 'failed') AS failed_calls
    FROM tool_calls GROUP BY task_id
) AS c ON c.task_id = t.task_id;
COMMENT ON VIEW runs IS 'One row a task with its steps, calls, tokens and duration in seconds.';

CREATE VIEW tool_stats AS
SELECT
    tool_name, count(*) AS calls,
    count(*) FILTER (status = 'completed') AS completed,
    count(*) FILTER (status = 'failed') AS failed,
    count(*) FILTER (status IN ('pending', 'started', 'uncertain')) AS unfinished,
    count(DISTINCT task_id) AS tasks,
    round(median(epoch_ms(completed_at - started_at)), 1) AS median_ms,
    round(quantile_cont(epoch_ms(completed_at - started_at), 0.99), 1) AS p99_ms
FROM tool_calls GROUP BY tool_name;
COMMENT ON VIEW tool_stats IS 'One row a tool: how often it was called, how it ended, how long it took in ms.';

CREATE VIEW usage_daily AS
SELECT
    CAST(s.started_at AS DATE) AS day, t.agent_name, s.request_model,
    count(*) AS steps, count(DISTINCT s.task_id) AS tasks,
    CAST(coalesce(sum(s.input_tokens), 0) AS BIGINT) AS input_tokens,
    CAST(coalesce(sum(s.output_tokens), 0) AS BIGINT) AS output_tokens,
    CAST(coalesce(sum(s.total_tokens), 0) AS BIGINT) AS total_tokens
FROM steps AS s LEFT JOIN tasks AS t ON t.task_id = s.task_id
GROUP BY ALL;
COMMENT ON VIEW usage_daily IS 'Steps and tokens by day (UTC), agent and model.';

CREATE VIEW stuck_tasks AS
SELECT
    task_id, agent_name, description, current_step, updated_at,
    date_diff('second', updated_at, now() AT TIME ZONE 'UTC') AS idle_seconds
FROM tasks
WHERE status = 'running' AND NOT imported
    AND updated_at < now() AT TIME ZONE 'UTC' - INTERVAL 15 MINUTE;
COMMENT ON VIEW stuck_tasks IS 'Running tasks without an event for 15 minutes; imported runs that nobody has claimed are left out.';

CREATE VIEW task_tree AS
WITH RECURSIVE tree AS (
    SELECT task_id AS root_task_id, task_id, parent_task_id, 0 AS depth, [task_id] AS path,
        status, total_tokens
    FROM tasks
    WHERE parent_task_id IS NULL OR parent_task_id NOT IN (SELECT task_id FROM tasks)
    UNION ALL
    SELECT p.root_task_id, t.task_id, t.parent_task_id, p.depth + 1,
        list_append(p.path, t.task_id), t.status, t.total_tokens
    FROM tasks AS t JOIN tree AS p ON t.parent_task_id = p.task_id
    WHERE NOT list_contains(p.path, t.task_id)
)
SELECT * FROM tree;
COMMENT ON VIEW task_tree IS 'Tasks under the tasks that started them: root, depth and path.';
