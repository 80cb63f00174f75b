-- Commits by which facts were published. An id is stored before its push: a branch that stands at one of them is ours,
-- whatever happened in between.

CREATE TABLE fact_commit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    project TEXT NOT NULL,
    -- The repository and its branch.
    place TEXT NOT NULL,
    commit_id TEXT NOT NULL,
    stack TEXT NOT NULL,
    made_at BIGINT NOT NULL,
    -- Null: whether it arrived is not known.
    pushed_at BIGINT,
    UNIQUE (project, place, commit_id)
);

-- What it wrote: keyed digests of the bytes, and of what is encrypted in them, with those who can read it.
CREATE TABLE fact_file (
    fact_commit BIGINT NOT NULL REFERENCES fact_commit (id),
    project TEXT NOT NULL,
    place TEXT NOT NULL,
    path TEXT NOT NULL,
    stack TEXT NOT NULL,
    bytes_digest TEXT NOT NULL,
    plain_digest TEXT,
    PRIMARY KEY (fact_commit, path)
);
CREATE INDEX fact_file_path ON fact_file (project, place, path);
