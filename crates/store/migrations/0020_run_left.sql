-- The runs whose engine left something that no state knows, so that nobody has to look through all runs for them.

CREATE TABLE run_left (
    run BIGINT PRIMARY KEY REFERENCES run (id)
);

INSERT INTO run_left (run) SELECT DISTINCT run FROM run_event WHERE body LIKE '%"left":{%';
