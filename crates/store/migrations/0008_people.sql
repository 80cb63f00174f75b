-- What people say about change sets: events, approvals, holds; and what each stack last ended well with.

CREATE TABLE change_set_event (
    change_set BIGINT NOT NULL REFERENCES change_set (id),
    seq BIGINT NOT NULL,
    at BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (change_set, seq)
);

CREATE TABLE approval (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    change_set BIGINT NOT NULL REFERENCES change_set (id),
    run BIGINT REFERENCES run (id),
    person TEXT NOT NULL,
    role TEXT,
    verified BIGINT NOT NULL,
    comment TEXT,
    at BIGINT NOT NULL
);
CREATE INDEX approval_change_set ON approval (change_set, id);

CREATE TABLE hold (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project TEXT NOT NULL,
    held TEXT NOT NULL,
    person TEXT NOT NULL,
    reason TEXT NOT NULL,
    since BIGINT NOT NULL,
    until BIGINT NOT NULL,
    released_by TEXT,
    released_at BIGINT
);
CREATE INDEX hold_project ON hold (project, until);

-- Whether nothing of its own differs from when its stack last ended well.
ALTER TABLE run ADD COLUMN settled BIGINT NOT NULL DEFAULT 0;
-- The name of its state, which break-glass records are kept by.
ALTER TABLE run ADD COLUMN state_name TEXT NOT NULL DEFAULT '';

-- The project and whether it is over, beside the JSON that says so: lists read these.
ALTER TABLE change_set ADD COLUMN project TEXT NOT NULL DEFAULT '';
ALTER TABLE change_set ADD COLUMN is_over BIGINT NOT NULL DEFAULT 0;
CREATE INDEX change_set_open ON change_set (is_over, id);

-- The last run of each stack that left everything as the source says, the keyed digest of the values it
-- took from other stacks, and the state it left.
CREATE TABLE stack_settled (
    project TEXT NOT NULL,
    stack TEXT NOT NULL,
    run BIGINT NOT NULL REFERENCES run (id),
    consumed TEXT,
    serial BIGINT,
    PRIMARY KEY (project, stack)
);
