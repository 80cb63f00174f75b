//! Which state a path names. There are several shapes, so that users of other servers only change the host.
//!
//! Not here: what is done with the state (`protocol`), permissions (`router`).

use model::state::StateName;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatePath {
    pub(crate) state: StateName,
    pub(crate) shape: PathShape,
    /// Whether it is the path of the state's lock, for clients that lock with POST or PUT.
    pub(crate) is_lock: bool,
}

/// The server whose path shape this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathShape {
    Own,
    Worker,
    GitLab,
    Bare,
}

impl PathShape {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Own => "state",
            Self::Worker => "worker",
            Self::GitLab => "gitlab",
            Self::Bare => "bare",
        }
    }
}

impl StatePath {
    /// The state that a path names, if any. `/<name>` names one only with `bare`.
    pub(crate) fn parse(path: &str, bare: bool) -> Option<Self> {
        let parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
        // A last part `lock` always means the lock of the state before it.
        let (parts, is_lock) = match parts.as_slice() {
            [state @ .., "lock"] if !state.is_empty() => (state, true),
            all => (all, false),
        };
        let (shape, project, name) = match parts {
            ["state", name] => (PathShape::Own, None, *name),
            ["state", project, name] => (PathShape::Own, Some(*project), *name),
            ["tfstate", "states", name] => (PathShape::Worker, None, *name),
            ["api", "v4", "projects", project, "terraform", "state", name] => {
                (PathShape::GitLab, Some(*project), *name)
            }
            ["healthz" | "readyz" | "metrics" | "state" | "tfstate" | "api"] => return None,
            [name] if bare => (PathShape::Bare, None, *name),
            _ => return None,
        };
        let full_name = match project {
            None => percent_decoded(name)?,
            Some(project) => format!("{}/{}", percent_decoded(project)?, percent_decoded(name)?),
        };
        Some(Self {
            state: state_name(&full_name)?,
            shape,
            is_lock,
        })
    }
}

/// An encoded slash is a slash: what precedes the first one is the project, as everywhere else.
fn state_name(full_name: &str) -> Option<StateName> {
    let is_part = |part: &str| !matches!(part, "" | "." | ".." | "lock");
    if !full_name.split('/').all(is_part) {
        return None;
    }
    Some(match full_name.split_once('/') {
        None => StateName::new("", full_name),
        Some((project, name)) => StateName::new(project, name),
    })
}

/// A name without its percent encoding, if it is valid.
fn percent_decoded(part: &str) -> Option<String> {
    const MAX_BYTES: usize = 255;
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            let value = digit()? * 16 + digit()?;
            u8::try_from(value).ok()?
        } else {
            byte
        });
    }
    let name = String::from_utf8(bytes).ok()?;
    let is_name = name.len() <= MAX_BYTES && !name.chars().any(char::is_control);
    is_name.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: &str) {
        let parsed = StatePath::parse(path, true).map(|path| {
            let lock = if path.is_lock { " (lock)" } else { "" };
            format!("{}: {}{lock}", path.shape.as_str(), path.state)
        });
        assert_eq!(parsed.as_deref().unwrap_or("nothing"), expected, "{path}");
    }

    #[test]
    fn every_shape_names_a_state_and_its_lock() {
        check("/state/shop/network", "state: shop/network");
        check("/state/shop/network/lock", "state: shop/network (lock)");
        check("/state/network", "state: network");
        check("/state/network/lock", "state: network (lock)");
        check("/tfstate/states/network", "worker: network");
        check("/tfstate/states/network/lock", "worker: network (lock)");
        let gitlab = "/api/v4/projects/42/terraform/state/network";
        check(gitlab, "gitlab: 42/network");
        check(&format!("{gitlab}/lock"), "gitlab: 42/network (lock)");
        check("/network", "bare: network");
        check("/network/lock", "bare: network (lock)");
    }

    #[test]
    fn a_bare_name_is_a_state_only_where_that_is_asked_for() {
        for path in ["/network", "/network/lock", "/login"] {
            assert_eq!(StatePath::parse(path, false), None, "{path}");
        }
        assert!(StatePath::parse("/state/network", false).is_some());
    }

    #[test]
    fn paths_that_name_no_state() {
        for path in [
            "",
            "/",
            "//",
            "/healthz",
            "/readyz",
            "/metrics",
            "/state",
            "/state/",
            "/state//x",
            "/state/x/",
            "/state/a/b/c",
            "/a/b",
            "/lock",
            "/state/lock",
            "/healthz/lock",
            "/api",
            "/tfstate/states",
            "/state/%",
            "/state/%zz",
            "/state/%00",
            "/state/..",
            "/state/%2e%2e",
            "/%ff",
            "/a%0a",
            "/api/v4/projects//terraform/state/x",
        ] {
            check(path, "nothing");
        }
        check(&format!("/{}", "x".repeat(256)), "nothing");
    }

    #[test]
    fn names_are_decoded() {
        check("/state/prod%2Fnetwork", "state: prod/network");
        check("/n%C3%A4tverk", "bare: nätverk");
    }

    #[test]
    fn an_encoded_slash_is_a_slash() {
        let named = |path: &str| {
            let path = StatePath::parse(path, true)?;
            Some((path.state.project, path.state.name))
        };
        let both = |project: &str, name: &str| Some((project.to_owned(), name.to_owned()));
        for path in ["/state/a/b", "/state/a%2Fb", "/state/a%2fb", "/a%2Fb"] {
            assert_eq!(named(path), both("a", "b"), "{path}");
        }
        assert_eq!(named("/state/a/b%2Fc"), both("a", "b/c"));
        assert_eq!(named("/state/a%2Fb/c"), both("a", "b/c"));
        for path in ["/%2Fa", "/a%2F", "/a%2F%2Fb", "/a%2F..", "/a%2Flock"] {
            assert_eq!(named(path), None, "{path}");
        }
    }
}
