-- Where a stack's facts stand now, and how to get there again: to withdraw them when nothing names the place any more.

CREATE TABLE fact_standing (
    project TEXT NOT NULL,
    stack TEXT NOT NULL,
    -- What tells it from others: a branch, a file, an object in a cluster.
    identity TEXT NOT NULL,
    -- JSON; no value of a fact is in it.
    standing TEXT NOT NULL,
    PRIMARY KEY (project, stack, identity)
);
