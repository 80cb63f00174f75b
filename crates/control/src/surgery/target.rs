//! Which older version is meant: by number, by serial, or by time.

use std::str::FromStr;

use jiff::Timestamp;
use model::state::{StateName, StateVersion};

use super::SurgeryError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Version(i64),
    /// The newest version with that serial.
    Serial(u64),
    /// The version that was the newest then.
    Time(Timestamp),
}

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is neither a version, nor `serial:N`, nor a time")]
pub struct InvalidTarget(String);

impl FromStr for Target {
    type Err = InvalidTarget;

    fn from_str(raw: &str) -> Result<Self, Self::Err> {
        let invalid = || InvalidTarget(raw.to_owned());
        if let Some(serial) = raw.strip_prefix("serial:") {
            return serial.parse().map(Self::Serial).map_err(|_| invalid());
        }
        if let Ok(version) = raw.strip_prefix('v').unwrap_or(raw).parse() {
            return Ok(Self::Version(version));
        }
        raw.parse().map(Self::Time).map_err(|_| invalid())
    }
}

impl Target {
    /// `versions` come oldest first.
    pub(super) fn find<'a>(
        self,
        state: &StateName,
        versions: &'a [StateVersion],
    ) -> Result<&'a StateVersion, SurgeryError> {
        let mut newest_first = versions.iter().rev();
        let no_version = |target: String| SurgeryError::NoVersion {
            state: state.clone(),
            target,
        };
        match self {
            Self::Version(version) => newest_first
                .find(|one| one.version == version)
                .ok_or_else(|| no_version(version.to_string())),
            Self::Serial(serial) => newest_first
                .find(|one| one.serial == serial)
                .ok_or_else(|| no_version(format!("with serial {serial}"))),
            Self::Time(at) => newest_first
                .find(|one| one.created_at <= at)
                .ok_or_else(|| SurgeryError::NotYet {
                    state: state.clone(),
                    at,
                }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_said() {
        let check = |raw: &str| raw.parse::<Target>().map_err(|err| err.to_string());
        assert_eq!(check("3"), Ok(Target::Version(3)));
        assert_eq!(check("v3"), Ok(Target::Version(3)));
        assert_eq!(check("serial:12"), Ok(Target::Serial(12)));
        let at: Timestamp = "2026-11-16T02:00:00Z".parse().unwrap();
        assert_eq!(check("2026-11-16T02:00:00Z"), Ok(Target::Time(at)));
        let wrong = "`yesterday` is neither a version, nor `serial:N`, nor a time";
        assert_eq!(check("yesterday"), Err(wrong.to_owned()));
    }
}
