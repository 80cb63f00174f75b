-- Who created a token, and who revoked it.
ALTER TABLE token ADD COLUMN created_by TEXT;
ALTER TABLE token ADD COLUMN revoked_by TEXT;
