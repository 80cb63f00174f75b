-- The secret paths of a version are in its frame.
DROP TABLE hidden;
DROP TABLE state_index_secret;
