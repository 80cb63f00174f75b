-- The values that were sensitive in a version and in none that was read before it: sealed, as the version is. Derived,
-- as all that was learned from reading versions.

CREATE TABLE state_index_secret (
    state BIGINT NOT NULL REFERENCES state (id),
    version BIGINT NOT NULL,
    sealed BYTEA NOT NULL,
    PRIMARY KEY (state, version)
);
