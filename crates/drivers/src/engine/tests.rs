//! Every call with every engine: the newest of each flavor on this machine.

mod calls;
mod installing;
mod locating;
mod openpgp;

use std::path::{Path, PathBuf};

use super::*;

/// The newest engine of each flavor on this machine.
fn engines() -> Vec<Engine> {
    let path = std::env::var_os("PATH");
    let home = PathBuf::from(std::env::var_os("HOME").unwrap());
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or(home.join(".cache"), PathBuf::from);
    let cache = cache.join("terrane");
    let mut engines = list(&EngineSearch::new(path.as_deref(), &cache));
    engines.sort_by_key(|engine| (engine.flavor, engine.version.clone()));
    engines.reverse();
    engines.dedup_by_key(|engine| engine.flavor);
    for (wanted, _) in testkit::engines::all() {
        assert!(
            engines.iter().any(|it| it.flavor.program() == wanted),
            "these tests need `{wanted}` on PATH or in the cache: `make test` gets one"
        );
    }
    engines
}

fn environment(dir: &Path) -> Environment {
    let asker = std::collections::BTreeMap::from([
        ("PATH".to_owned(), std::env::var("PATH").unwrap()),
        ("HOME".to_owned(), dir.display().to_string()),
    ]);
    process::engine_environment(&asker, false)
}
