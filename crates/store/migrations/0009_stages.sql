-- The stages that follow a run's apply, as JSON: looked at in every decision, so not only in its spec.
ALTER TABLE run ADD COLUMN stages TEXT NOT NULL DEFAULT '[]';
