//! Where secret references lead: resolved in the stage that needs them, never stored.
