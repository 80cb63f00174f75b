-- Which bucket the blobs are in (one row): the same word lies in it.
CREATE TABLE blob_home (
    id BIGINT PRIMARY KEY,
    word TEXT NOT NULL
);
