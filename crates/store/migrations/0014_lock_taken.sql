-- A lock is remembered when it is taken, not when it ends: ending one, which everybody who was served waits for, is one
-- statement then. A repeated UNLOCK is no error, a late LOCK or write is.

CREATE TABLE lock_taken (
    state BIGINT NOT NULL REFERENCES state (id),
    epoch BIGINT NOT NULL,
    lock_id TEXT NOT NULL,
    at BIGINT NOT NULL,
    PRIMARY KEY (state, epoch)
);
CREATE UNIQUE INDEX lock_taken_id ON lock_taken (state, lock_id);

INSERT INTO lock_taken (state, epoch, lock_id, at)
    SELECT state, MAX(epoch), lock_id, MAX(at) FROM lock_ended GROUP BY state, lock_id;
INSERT INTO lock_taken (state, epoch, lock_id, at)
    SELECT id, lock_epoch, lock_id, COALESCE(lock_since, created_at) FROM state WHERE lock_id IS NOT NULL
    ON CONFLICT DO NOTHING;

DROP TABLE lock_ended;
