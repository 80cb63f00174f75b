-- How many names of objects were given out (one row). A bucket that has a higher one has met newer tables than these.
CREATE TABLE blob_number (
    id BIGINT PRIMARY KEY,
    number BIGINT NOT NULL
);

-- States of which a bucket has newer versions than these tables: not served until the tables know them.
CREATE TABLE state_behind (
    project TEXT NOT NULL,
    name TEXT NOT NULL,
    acknowledged BIGINT NOT NULL,
    since BIGINT,
    PRIMARY KEY (project, name)
);
