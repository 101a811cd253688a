-- name: configure
SELECT
    set_config('search_path', %(schema)s || ', ' || current_setting('search_path'), false),
    set_config('statement_timeout', %(timeout)s, false),
    set_config('idle_in_transaction_session_timeout', '60s', false),
    set_config('timezone', 'UTC', false),
    -- A filter's values decide the plan, so a plan made for any value is the wrong one.
    set_config('plan_cache_mode', 'force_custom_plan', false),
    set_config('jit', 'off', false),
    set_config('hnsw.iterative_scan', 'relaxed_order', false),
    set_config('hnsw.ef_search', '100', false),
    set_config(
        'synchronous_commit',
        CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END,
        false
    )
