//! The architecture in one table: which crate may depend on which.
//!
//! Not here: the check (`tidy::manifests`) and the page generated from it (`docs`).

/// A crate by its directory's name, and the workspace crates that it may depend on. Every crate may use `testkit`
/// in tests, and tests may use any crate below their own, at any depth.
pub(crate) const LAYERS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("store", &["model"]),
    ("drivers", &["model"]),
    ("render", &["model", "drivers"]),
    ("control", &["model", "store", "drivers", "render"]),
    ("server", &["model", "control"]),
    ("cli", &["model", "render", "control", "server"]),
    ("testkit", &["model"]),
    ("xtask", &["model", "testkit"]),
];

/// What each crate guarantees, as shown on the reference page.
pub(crate) const PROMISES: &[(&str, &str)] = &[
    (
        "model",
        "pure: parses, decides, renders; no clock, disk, socket or environment",
    ),
    ("store", "the one door to SQL and blobs"),
    (
        "drivers",
        "the one door to processes, Git, engines and the network",
    ),
    (
        "render",
        "`terrane render`: the only crate with a template language",
    ),
    (
        "control",
        "use cases, loops and runners; alone knows both `store` and `drivers`",
    ),
    ("server", "HTTP only: parse, authorise, call `control`, map"),
    ("cli", "the binary `terrane`: arguments, request, view"),
    ("testkit", "parts for tests; never in a release"),
    ("xtask", "checks and measures the repository itself"),
];

/// The allowed dependencies of the crate in this directory; `None` if the table does not have it.
pub(crate) fn allowed(name: &str) -> Option<&'static [&'static str]> {
    LAYERS
        .iter()
        .find(|(row, _)| *row == name)
        .map(|(_, allowed)| *allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_no_circle() {
        // Each row may only name rows above it, so a cycle is impossible.
        let mut seen: Vec<&str> = Vec::new();
        for (name, allowed) in LAYERS {
            for dependency in *allowed {
                assert!(
                    seen.contains(dependency),
                    "`{name}` names `{dependency}` before its row"
                );
            }
            seen.push(name);
        }
    }

    #[test]
    fn every_row_has_its_promise() {
        let rows: Vec<&str> = LAYERS.iter().map(|(name, _)| *name).collect();
        let promises: Vec<&str> = PROMISES.iter().map(|(name, _)| *name).collect();
        assert_eq!(rows, promises);
    }
}
