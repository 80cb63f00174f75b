-- What plans look like, sealed, for whoever is asked about them on another machine that shares the home.

CREATE TABLE plan_view (
    run BIGINT PRIMARY KEY REFERENCES run (id),
    sealed BYTEA NOT NULL
);
