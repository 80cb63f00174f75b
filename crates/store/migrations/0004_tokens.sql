-- Who may talk to the state server. Of the token itself only its SHA-256 is kept.
CREATE TABLE token (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    digest BYTEA NOT NULL UNIQUE,
    states TEXT NOT NULL,
    scope TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT
);
-- A name is free again when its token was taken back.
CREATE UNIQUE INDEX token_name ON token (name) WHERE revoked_at IS NULL;
