-- What a person decided about a state that was kept aside: while `decision` is null for a refused adoption, the
-- stack is not applied.
ALTER TABLE refusal ADD COLUMN decision TEXT;
ALTER TABLE refusal ADD COLUMN decided_by TEXT;
ALTER TABLE refusal ADD COLUMN decided_reason TEXT;
ALTER TABLE refusal ADD COLUMN decided_at BIGINT;
