//! Cleans up when our process ends in any way: removes a directory or kills a process group. A shell waits for the
//! end of a pipe that only we hold.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::PoisonError;

use super::{ChildProcess, ChildSpec, Environment, SPAWNING, StartError, bare_command, start_in};

const REMOVE: &str = r#"cat > /dev/null; rm -rf -- "$1""#;
/// The shell ignores signals to its group, until the end.
const KILL: &str = "trap '' HUP INT QUIT TERM; read -r word; [ \"$word\" = ended ] || kill -9 0";

/// The directory is removed when this is dropped or our process is killed.
#[derive(Debug)]
pub struct DirGuard(Child);

/// Removes a directory once the keeper is dropped or our process ends. Our children do not inherit the pipe.
pub fn remove_on_exit(dir: &Path) -> io::Result<DirGuard> {
    keep(REMOVE, dir.as_os_str())
}

/// A process group that is killed if our process ends first. A shell leads the group: it starts before the
/// programs and ends after them. New programs join the group, and its id cannot be reused meanwhile.
#[derive(Debug)]
pub struct ProcessGroupGuard(DirGuard);

impl ProcessGroupGuard {
    pub fn new() -> io::Result<Self> {
        keep(KILL, "".as_ref()).map(Self)
    }

    /// Like [`start`](super::start), in this group. The program holds our end of the pipe until it has joined the
    /// group. The shell therefore cannot kill the group before that and miss it.
    pub fn start(&self, spec: &ChildSpec<'_>) -> Result<ChildProcess, StartError> {
        start_in(spec, Some(self.0.0.id()))
    }

    /// The program has ended by itself: do not kill what it left running.
    pub fn ended(mut self) {
        if let Some(mut pipe) = self.0.0.stdin.take() {
            // A shell that is gone kills nothing either.
            let _ = pipe.write_all(b"ended\n");
        }
    }
}

fn keep(action: &str, about: &OsStr) -> io::Result<DirGuard> {
    let mut env = Environment::new();
    env.set("PATH", "/usr/local/bin:/usr/bin:/bin");
    let mut command = bare_command(Path::new("/bin/sh"), &env);
    command
        .args(["-c", action, "sh"])
        .arg(about)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _turn = SPAWNING.lock().unwrap_or_else(PoisonError::into_inner);
    command.spawn().map(DirGuard)
}

impl Drop for DirGuard {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Only a killed shell fails, and no caller can use the error.
        let _ = self.0.wait();
    }
}
