//! The real engines, as `make test` sets them. A missing engine fails the test that needs it, unless it is
//! excluded by name: `TERRANE_TEST_WITHOUT=terraform`.

use std::path::PathBuf;

/// OpenTofu, which is always available.
pub fn tofu() -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let cached = home.map(|home| home.join(".cache/terrane/engines/tofu/1.11.14/tofu"));
    named("TERRANE_TEST_TOFU")
        .or_else(|| cached.filter(|path| path.is_file()))
        .unwrap_or_else(|| {
            panic!("there is no OpenTofu for tests: run `make tools`, or `make test`")
        })
}

/// Terraform; `None` only if it is excluded by name.
pub fn terraform() -> Option<PathBuf> {
    if is_left_out("terraform") {
        return None;
    }
    let found = named("TERRANE_TEST_TERRAFORM").or_else(|| on_path("terraform"));
    Some(found.unwrap_or_else(|| {
        panic!(
            "there is no `terraform` on PATH: install it, or set `TERRANE_TEST_WITHOUT=terraform`"
        )
    }))
}

/// Every engine that is not excluded, with its name in the project file.
pub fn all() -> Vec<(&'static str, PathBuf)> {
    let mut engines = vec![("tofu", tofu())];
    engines.extend(terraform().map(|program| ("terraform", program)));
    engines
}

fn is_left_out(engine: &str) -> bool {
    let without = std::env::var("TERRANE_TEST_WITHOUT").unwrap_or_default();
    without.split(',').any(|name| name.trim() == engine)
}

fn named(variable: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    named.filter(|path| path.is_file())
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}
