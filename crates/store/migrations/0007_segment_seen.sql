-- Up to where the segments were compared with the tables (one row): what lies behind that may be news to them, if an
-- older copy of the tables was put in their place.
CREATE TABLE segment_seen (
    id BIGINT PRIMARY KEY,
    segment BIGINT NOT NULL,
    length BIGINT NOT NULL
);
