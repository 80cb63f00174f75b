-- The last locks of a state stand in places that are used again, beside one another: one page is written for each lock, not
-- four, and nothing has to be removed.

ALTER TABLE lock_taken RENAME TO lock_taken_before;

CREATE TABLE lock_taken (
    state BIGINT NOT NULL REFERENCES state (id),
    slot BIGINT NOT NULL,
    epoch BIGINT NOT NULL,
    lock_id TEXT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (state, slot)
) WITHOUT ROWID;

INSERT INTO lock_taken (state, slot, epoch, lock_id, at)
    SELECT b.state, b.epoch % 32, b.epoch, b.lock_id, b.at
    FROM lock_taken_before AS b JOIN state AS s ON s.id = b.state
    WHERE b.epoch > s.lock_epoch - 32;

DROP TABLE lock_taken_before;
