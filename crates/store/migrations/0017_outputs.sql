-- The outputs of states that the client has encrypted, as the engine told them: sealed. Equal bytes have equal outputs,
-- whichever version they are.

CREATE TABLE opened_outputs (
    project TEXT NOT NULL,
    name TEXT NOT NULL,
    content TEXT NOT NULL,
    sealed BYTEA NOT NULL,
    PRIMARY KEY (project, name, content)
);
