-- Where secrets of runs stand in states: places, never values. Who shows a state heeds them, and needs no secret for it.

CREATE TABLE hidden (
    project TEXT NOT NULL,
    name TEXT NOT NULL,
    -- JSON.
    place TEXT NOT NULL,
    -- The first version in which something else stands there.
    ended BIGINT,
    PRIMARY KEY (project, name, place)
);
