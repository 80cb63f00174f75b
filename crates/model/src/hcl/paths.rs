//! Paths inside the project: their normal form, detection of paths that leave it, and globs.

/// Why a path is not inside the project.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OutsideProject {
    #[error("`{0}` leaves the project")]
    Up(String),
    #[error("`{0}` is an absolute path: paths must be relative to the project's root")]
    Absolute(String),
}

/// `./a//b/../c` becomes `a/c`; the root is `""`.
pub(crate) fn normalize(raw: &str) -> Result<String, OutsideProject> {
    join("", raw)
}

/// The same for a path relative to a directory of the project.
pub(crate) fn join(dir: &str, raw: &str) -> Result<String, OutsideProject> {
    let drive = raw.as_bytes().get(1) == Some(&b':') && raw.as_bytes()[0].is_ascii_alphabetic();
    if raw.starts_with(['/', '\\', '~']) || drive {
        return Err(OutsideProject::Absolute(raw.to_owned()));
    }
    let mut parts: Vec<&str> = dir.split('/').filter(|part| !part.is_empty()).collect();
    for part in raw.split(['/', '\\']) {
        match part {
            "" | "." => {}
            ".." => {
                if parts.pop().is_none() {
                    return Err(OutsideProject::Up(raw.to_owned()));
                }
            }
            part => parts.push(part),
        }
    }
    Ok(parts.join("/"))
}

/// A glob as everywhere in terrane: `*` stays inside a directory, `**` does not.
pub(crate) fn compile_glob(raw: &str) -> Result<globset::GlobMatcher, String> {
    // The matcher's size grows with the pattern.
    if raw.len() > 1024 {
        return Err("this glob is too long".to_owned());
    }
    globset::GlobBuilder::new(raw)
        .literal_separator(true)
        .build()
        .map(|glob| glob.compile_matcher())
        .map_err(|err| format!("`{raw}` is not a glob: {}", err.kind()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(dir: &str, raw: &str, expected: &str) {
        let seen = join(dir, raw).unwrap_or_else(|leaves| leaves.to_string());
        assert_eq!(seen, expected);
    }

    #[test]
    fn paths_have_one_normal_form() {
        check("", "./a//b/../c/", "a/c");
        check("infra/dns", "../network", "infra/network");
        check("", ".", "");
        check("a", "../../b", "`../../b` leaves the project");
        check("", "a/../../b", "`a/../../b` leaves the project");
        check(
            "",
            "/etc",
            "`/etc` is an absolute path: paths must be relative to the project's root",
        );
        check(
            "",
            "C:\\x",
            "`C:\\x` is an absolute path: paths must be relative to the project's root",
        );
    }
}
