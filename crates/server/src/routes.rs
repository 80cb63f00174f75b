//! Which state a path names. Users of other servers change a host, nothing else, so there are several
//! shapes for the same thing.
//!
//! Not here: what is done there (`wire`), and who may (`auth`).

use model::state::StateName;

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Health,
    Ready,
    Metrics,
    State(StatePath),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatePath {
    pub(crate) state: StateName,
    pub(crate) shape: Shape,
    /// Whether it is the path that clients lock and unlock at, where they have one.
    pub(crate) is_lock: bool,
}

/// Whose shape a path has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shape {
    Own,
    Worker,
    GitLab,
    Plain,
}

impl Shape {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Own => "state",
            Self::Worker => "worker",
            Self::GitLab => "gitlab",
            Self::Plain => "plain",
        }
    }
}

/// Nothing for a path that names nothing: it is refused, for 404 would mean that there is no state.
pub(crate) fn route(path: &str) -> Option<Route> {
    let parts: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    // A last part `lock` is always the lock of what stands before it.
    let (parts, is_lock) = match parts.as_slice() {
        [state @ .., "lock"] if !state.is_empty() => (state, true),
        all => (all, false),
    };
    let (shape, project, name) = match parts {
        ["healthz"] if !is_lock => return Some(Route::Health),
        ["readyz"] if !is_lock => return Some(Route::Ready),
        ["metrics"] if !is_lock => return Some(Route::Metrics),
        ["state", name] => (Shape::Own, None, *name),
        ["state", project, name] => (Shape::Own, Some(*project), *name),
        ["tfstate", "states", name] => (Shape::Worker, None, *name),
        ["api", "v4", "projects", project, "terraform", "state", name] => {
            (Shape::GitLab, Some(*project), *name)
        }
        ["healthz" | "readyz" | "metrics" | "state" | "tfstate" | "api"] => return None,
        [name] => (Shape::Plain, None, *name),
        _ => return None,
    };
    let named = match project {
        None => decoded(name)?,
        Some(project) => format!("{}/{}", decoded(project)?, decoded(name)?),
    };
    Some(Route::State(StatePath {
        state: state(&named)?,
        shape,
        is_lock,
    }))
}

/// An encoded slash is a slash: what stands before the first one is the project, as people write it everywhere else.
fn state(named: &str) -> Option<StateName> {
    let is_part = |part: &str| !matches!(part, "" | "." | ".." | "lock");
    if !named.split('/').all(is_part) {
        return None;
    }
    Some(match named.split_once('/') {
        None => StateName::new("", named),
        Some((project, name)) => StateName::new(project, name),
    })
}

/// A name without its percent encoding, if it can be one.
fn decoded(part: &str) -> Option<String> {
    const LONGEST: usize = 255;
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
    let is_name = name.len() <= LONGEST && !name.chars().any(char::is_control);
    is_name.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, expected: &str) {
        let told = match route(path) {
            None => "nothing".to_owned(),
            Some(Route::State(path)) => {
                let lock = if path.is_lock { " (lock)" } else { "" };
                format!("{}: {}{lock}", path.shape.as_str(), path.state)
            }
            Some(other) => format!("{other:?}"),
        };
        assert_eq!(told, expected, "{path}");
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
        check("/network", "plain: network");
        check("/network/lock", "plain: network (lock)");
    }

    #[test]
    fn what_is_not_a_state() {
        check("/healthz", "Health");
        check("/readyz", "Ready");
        check("/metrics", "Metrics");
        for path in [
            "",
            "/",
            "//",
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
        check("/n%C3%A4tverk", "plain: nätverk");
    }

    #[test]
    fn an_encoded_slash_is_a_slash() {
        let named = |path: &str| match route(path) {
            Some(Route::State(path)) => Some((path.state.project, path.state.name)),
            _ => None,
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
