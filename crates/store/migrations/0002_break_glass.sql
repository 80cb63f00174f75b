-- Emergency acts: who, what, why. Open until `closed_at`.
CREATE TABLE break_glass (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    act TEXT NOT NULL,
    project TEXT NOT NULL,
    state TEXT NOT NULL,
    actor TEXT NOT NULL,
    reason TEXT,
    detail TEXT NOT NULL,
    at BIGINT NOT NULL,
    closed_at BIGINT
);
CREATE INDEX break_glass_state ON break_glass (project, state, id);

-- A state that was deleted is hidden; its versions stay. Where `runs_only` is set, other writers are refused.
ALTER TABLE state ADD COLUMN deleted_at BIGINT;
ALTER TABLE state ADD COLUMN runs_only BIGINT NOT NULL DEFAULT 0;

-- Who wrote a version, and until when retention must leave it alone.
ALTER TABLE state_version ADD COLUMN actor TEXT NOT NULL DEFAULT '';
ALTER TABLE state_version ADD COLUMN pinned_until BIGINT;
