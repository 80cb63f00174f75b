//! Generates reference pages: `cargo xtask docs`, and `--check` to compare.
//!
//! Not here: pages that people write (`docs/guide`, `docs/decisions`).

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use crate::layers::{LAYERS, PROMISES};

/// A page and the function that renders it.
struct Page {
    path: &'static str,
    render: fn() -> String,
}

/// Every generated page. The crate that owns the displayed tables renders the page.
const PAGES: &[Page] = &[
    Page {
        path: "docs/reference/crates.md",
        render: crates_page,
    },
    Page {
        path: "docs/reference/project-file.md",
        render: model::project::config::reference::render,
    },
    Page {
        path: "docs/reference/runs.md",
        render: model::run::reference::render,
    },
];

pub(crate) fn write(root: &Path) -> io::Result<Vec<&'static str>> {
    for page in PAGES {
        let path = root.join(page.path);
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        std::fs::write(path, (page.render)())?;
    }
    Ok(PAGES.iter().map(|page| page.path).collect())
}

/// The pages that differ from what the code would generate.
pub(crate) fn stale(root: &Path) -> Vec<&'static str> {
    PAGES
        .iter()
        .filter(|page| {
            std::fs::read_to_string(root.join(page.path))
                .ok()
                .as_deref()
                != Some(&(page.render)())
        })
        .map(|page| page.path)
        .collect()
}

fn crates_page() -> String {
    let mut page = String::from(
        "<!-- Written by `cargo xtask docs`; a change here is lost. -->\n\n\
         # Crates\n\n\
         Who may depend on whom. `cargo xtask tidy` refuses anything else; tests may also use \
         `testkit`.\n\n\
         | crate | promise | may depend on |\n|---|---|---|\n",
    );
    for ((name, allowed), (_, promise)) in LAYERS.iter().zip(PROMISES) {
        let allowed = match allowed {
            [] => "nothing of ours".to_owned(),
            some => some
                .iter()
                .map(|name| format!("`{name}`"))
                .collect::<Vec<_>>()
                .join(", "),
        };
        let _ = writeln!(page, "| `{name}` | {promise} | {allowed} |");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_stale_until_it_is_written_and_after_an_edit() {
        let root = tempfile::tempdir().unwrap();
        let all: Vec<&str> = PAGES.iter().map(|page| page.path).collect();
        assert_eq!(stale(root.path()), all);
        assert_eq!(write(root.path()).unwrap(), all);
        assert!(stale(root.path()).is_empty());
        std::fs::write(root.path().join(PAGES[0].path), "edited by hand").unwrap();
        assert_eq!(stale(root.path()), [PAGES[0].path]);
    }
}
