-- The files that a stack wrote and that are kept with its state: all of them are one sealed piece, `kept`.

CREATE TABLE artifact_set (
    project TEXT NOT NULL,
    state TEXT NOT NULL,
    kept TEXT NOT NULL,
    files BIGINT NOT NULL,
    -- The run that wrote them; none if they were brought here from elsewhere.
    run BIGINT,
    at BIGINT NOT NULL,
    PRIMARY KEY (project, state)
);
