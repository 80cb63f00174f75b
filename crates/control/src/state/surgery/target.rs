//! Selects an older version by number, serial or time.

use jiff::Timestamp;
use model::base::error::{ErrorKind, Explain, NextStep, advice};
use model::state::version_ref::VersionRef;
use model::state::{StateName, StateVersion};

use super::SurgeryError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RollbackTarget {
    Version(i64),
    /// The version with that serial; if there are several, all must have the same content.
    Serial(u64),
    /// The newest version at that time.
    Time(Timestamp),
}

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is neither a version, nor `serial:N`, nor a time")]
pub struct InvalidRollbackTarget(String);

impl Explain for InvalidRollbackTarget {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }

    fn next_steps(&self) -> Vec<NextStep> {
        vec![advice(
            "write `12`, `serial:40`, `2026-11-01T10:00` (UTC), or an age: `2h`, `3d`",
        )]
    }
}

impl RollbackTarget {
    /// Parses `12` or `v12`, `serial:40`, or a time as in other commands.
    pub fn parse(raw: &str, now: Timestamp) -> Result<Self, InvalidRollbackTarget> {
        let raw = raw
            .strip_prefix('v')
            .filter(|rest| rest.parse::<i64>().is_ok())
            .unwrap_or(raw);
        match VersionRef::parse(raw, now) {
            Ok(VersionRef::Version(version)) => Ok(Self::Version(version)),
            Ok(VersionRef::Serial(serial)) => Ok(Self::Serial(serial)),
            Ok(VersionRef::At(at)) => Ok(Self::Time(at)),
            Ok(VersionRef::Head) | Err(_) => Err(InvalidRollbackTarget(raw.to_owned())),
        }
    }
}

impl RollbackTarget {
    /// `versions` are ordered oldest first.
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
            Self::Serial(serial) => {
                let having: Vec<_> = versions.iter().filter(|one| one.serial == serial).collect();
                let newest = having.last().copied();
                let newest = newest.ok_or_else(|| no_version(format!("with serial {serial}")))?;
                if having.iter().any(|one| one.content != newest.content) {
                    return Err(SurgeryError::SerialTwice {
                        state: state.clone(),
                        serial,
                        versions: having.iter().map(|one| one.version).collect(),
                    });
                }
                Ok(newest)
            }
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
        let now: Timestamp = "2026-11-16T04:00:00Z".parse().unwrap();
        let check = |raw: &str| RollbackTarget::parse(raw, now).map_err(|err| err.to_string());
        assert_eq!(check("3"), Ok(RollbackTarget::Version(3)));
        assert_eq!(check("v3"), Ok(RollbackTarget::Version(3)));
        assert_eq!(check("serial:12"), Ok(RollbackTarget::Serial(12)));
        let at: Timestamp = "2026-11-16T02:00:00Z".parse().unwrap();
        assert_eq!(check("2026-11-16T02:00:00Z"), Ok(RollbackTarget::Time(at)));
        assert_eq!(check("2026-11-16 02:00"), Ok(RollbackTarget::Time(at)));
        assert_eq!(check("2h"), Ok(RollbackTarget::Time(at)));
        let wrong = "`yesterday` is neither a version, nor `serial:N`, nor a time";
        assert_eq!(check("yesterday"), Err(wrong.to_owned()));
    }
}
