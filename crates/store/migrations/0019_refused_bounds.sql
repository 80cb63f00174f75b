-- What is kept of a refused write: the keyed digest of its bytes (equal ones are stored once), how much it takes, and when
-- it was let go of.
ALTER TABLE refusal ADD COLUMN content TEXT;
ALTER TABLE refusal ADD COLUMN stored BIGINT;
ALTER TABLE refusal ADD COLUMN let_go BIGINT;
