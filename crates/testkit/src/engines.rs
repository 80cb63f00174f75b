//! Where the real engines are. `make test` names them; a missing OpenTofu fails the test that needs it.

use std::path::PathBuf;

/// OpenTofu, which every test may count on.
pub fn tofu() -> PathBuf {
    named("TERRANE_TEST_TOFU")
        .unwrap_or_else(|| panic!("no OpenTofu for tests: run `make tools`, or `make test`"))
}

/// Terraform, where it is there.
pub fn terraform() -> Option<PathBuf> {
    named("TERRANE_TEST_TERRAFORM").or_else(|| on_path("terraform"))
}

/// Every engine there is, with the word the project file has for it.
pub fn all() -> Vec<(&'static str, PathBuf)> {
    let mut engines = vec![("tofu", tofu())];
    engines.extend(terraform().map(|program| ("terraform", program)));
    engines
}

fn named(variable: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable)
        .map(PathBuf::from)
        .filter(|path| path.is_file());
    let cached = || {
        let home = std::env::var_os("HOME").map(PathBuf::from)?;
        Some(home.join(".cache/terrane/engines/tofu/1.11.14/tofu")).filter(|path| path.is_file())
    };
    if variable == "TERRANE_TEST_TOFU" {
        named.or_else(cached)
    } else {
        named
    }
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}
