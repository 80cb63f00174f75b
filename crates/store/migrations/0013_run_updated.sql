-- Whether anything was applied since a moment is asked at every turn that takes lanes, however many runs there are.

CREATE INDEX run_updated ON run (updated_at);
