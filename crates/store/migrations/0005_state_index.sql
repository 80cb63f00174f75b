-- What was learned from reading versions: derived, so any of it may be deleted. Values are keyed digests only.

-- How far a state was read. `form` says how; with another one it is read again from the start.
CREATE TABLE state_index (
    state BIGINT PRIMARY KEY REFERENCES state (id),
    version BIGINT NOT NULL,
    form TEXT NOT NULL
);

-- What a version did in numbers; `opaque` says why nothing could be told.
CREATE TABLE state_index_version (
    state BIGINT NOT NULL REFERENCES state (id),
    version BIGINT NOT NULL,
    resources BIGINT NOT NULL,
    added BIGINT NOT NULL,
    changed BIGINT NOT NULL,
    removed BIGINT NOT NULL,
    others BIGINT NOT NULL,
    opaque TEXT,
    PRIMARY KEY (state, version)
);

-- From which version on an object is there, and up to which it was.
CREATE TABLE state_index_entry (
    state BIGINT NOT NULL REFERENCES state (id),
    address TEXT NOT NULL,
    first_version BIGINT NOT NULL,
    type TEXT NOT NULL,
    kind TEXT NOT NULL,
    last_version BIGINT,
    PRIMARY KEY (state, address, first_version)
);

-- A value that became another one. No `before`: it was not there; no `after`: it is gone.
CREATE TABLE state_index_change (
    state BIGINT NOT NULL REFERENCES state (id),
    address TEXT NOT NULL,
    path TEXT NOT NULL,
    version BIGINT NOT NULL,
    before TEXT,
    after TEXT,
    PRIMARY KEY (state, address, path, version)
);
CREATE INDEX state_index_change_version ON state_index_change (state, version);
CREATE INDEX state_index_change_after ON state_index_change (after);
