//! The only place where the repository's own tools start a process.
//!
//! Not here: how the product does it (`drivers::process`).

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

/// A command in a directory; the caller adds environment and arguments.
#[expect(
    clippy::disallowed_methods,
    reason = "xtask has no drivers: this is where its children are born"
)]
pub(crate) fn command(dir: &Path, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.current_dir(dir).stdin(Stdio::null());
    command
}

/// The output of a program; an error if it cannot start or fails.
pub(crate) fn stdout(dir: &Path, program: impl AsRef<OsStr>, args: &[&str]) -> io::Result<String> {
    let name = program.as_ref().to_string_lossy().into_owned();
    let output = command(dir, program).args(args).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!(
            "`{name} {}` failed: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        )));
    }
    String::from_utf8(output.stdout).map_err(io::Error::other)
}
