-- A version may be stored as the difference to the version `base`; `depth` counts the steps to a whole one.
ALTER TABLE state_version ADD COLUMN base BIGINT;
ALTER TABLE state_version ADD COLUMN depth BIGINT NOT NULL DEFAULT 0;

-- Objects that are being uploaded, or wait to be removed: what is listed here may go, and nothing else.
CREATE TABLE blob_intent (
    object TEXT PRIMARY KEY,
    at BIGINT NOT NULL
);
CREATE INDEX blob_intent_at ON blob_intent (at);
