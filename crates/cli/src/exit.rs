//! All exit codes.

use std::process::ExitCode;

use model::base::error::ErrorKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExitStatus {
    Done,
    Failed,
    /// `plan --detailed-exitcode`, `fmt --check`: something differs.
    Changes,
    /// A user's decision is needed first.
    Waits,
    /// A rule refused it: writer, lock, seal, home.
    Refused,
    /// A gate did not pass.
    NotVerified,
    Usage,
    /// The engine's exit code, for `exec`.
    Engine(i32),
    Interrupted,
}

impl ExitStatus {
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Changes => 2,
            Self::Waits => 3,
            Self::Refused => 4,
            Self::NotVerified => 5,
            Self::Usage => 64,
            Self::Engine(code) => u8::try_from(code).unwrap_or(1),
            Self::Interrupted => 130,
        }
    }
}

impl From<ErrorKind> for ExitStatus {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Refused => Self::Refused,
            ErrorKind::Usage => Self::Usage,
            ErrorKind::Unavailable | ErrorKind::NotFound | ErrorKind::Failed => Self::Failed,
        }
    }
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        Self::from(status.code())
    }
}
