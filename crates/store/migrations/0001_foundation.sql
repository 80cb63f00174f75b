-- Everything the embedded home keeps in tables. Times are epoch microseconds; columns named
-- `status`, `request`, `spec`, `state` of a run and `body` hold JSON.

-- A state: its head and its lock are one row, so that one conditional UPDATE decides.
CREATE TABLE state (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project TEXT NOT NULL,
    name TEXT NOT NULL,
    head BIGINT,
    lock_id TEXT,
    lock_info TEXT,
    lock_run BIGINT,
    lock_since BIGINT,
    lock_epoch BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    UNIQUE (project, name)
);
CREATE INDEX state_lock_run ON state (lock_run);

CREATE TABLE state_version (
    state BIGINT NOT NULL REFERENCES state (id),
    version BIGINT NOT NULL,
    serial BIGINT NOT NULL,
    lineage TEXT NOT NULL,
    content TEXT NOT NULL,
    size BIGINT NOT NULL,
    parent BIGINT,
    blob TEXT NOT NULL,
    blob_digest BYTEA NOT NULL,
    contents TEXT NOT NULL,
    mark TEXT,
    run BIGINT,
    lock_id TEXT,
    created_at BIGINT NOT NULL,
    UNIQUE (state, version)
);

-- The locks that ended lately: a repeated UNLOCK is no error, a late write is.
CREATE TABLE lock_ended (
    state BIGINT NOT NULL REFERENCES state (id),
    epoch BIGINT NOT NULL,
    lock_id TEXT NOT NULL,
    how TEXT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (state, epoch)
);
CREATE INDEX lock_ended_id ON lock_ended (state, lock_id);

-- What was refused, why, and where its body is kept: clients do not show our reasons.
CREATE TABLE refusal (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project TEXT NOT NULL,
    state TEXT NOT NULL,
    deed TEXT NOT NULL,
    reason TEXT NOT NULL,
    run BIGINT,
    lock_id TEXT,
    kept TEXT,
    at BIGINT NOT NULL
);
CREATE INDEX refusal_state ON refusal (project, state, id);
CREATE INDEX refusal_run ON refusal (run);

CREATE TABLE change_set (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    action TEXT NOT NULL,
    status TEXT NOT NULL,
    request TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE TABLE run (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    change_set BIGINT NOT NULL REFERENCES change_set (id),
    stack TEXT NOT NULL,
    spec TEXT NOT NULL,
    upstreams TEXT NOT NULL,
    state TEXT NOT NULL,
    revision BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
-- `revision` counts the changes of a change set's runs in the order of their commits.
CREATE INDEX run_change_set ON run (change_set, revision);
CREATE INDEX run_stack ON run (stack, id);

CREATE TABLE run_event (
    run BIGINT NOT NULL REFERENCES run (id),
    seq BIGINT NOT NULL,
    at BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (run, seq)
);

-- One writer per target at a time.
CREATE TABLE lane (
    name TEXT PRIMARY KEY,
    change_set BIGINT REFERENCES change_set (id),
    epoch BIGINT NOT NULL,
    since BIGINT NOT NULL
);
CREATE INDEX lane_change_set ON lane (change_set);

CREATE TABLE lane_wait (
    change_set BIGINT PRIMARY KEY REFERENCES change_set (id),
    since BIGINT NOT NULL
);
CREATE INDEX lane_wait_since ON lane_wait (since);
