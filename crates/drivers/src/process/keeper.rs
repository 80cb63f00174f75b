//! What goes when we go, however that happens, a directory or a group of programs: a shell waits for the end of a pipe
//! that only we hold.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::PoisonError;

use super::{ChildSpec, Environment, Running, SPAWNING, StartError, bare_command, start_in};

const REMOVE: &str = r#"cat > /dev/null; rm -rf -- "$1""#;
/// What is said to the group is not for the shell, until the end.
const KILL: &str = "trap '' HUP INT QUIT TERM; read -r word; [ \"$word\" = ended ] || kill -9 0";

/// Dropped, or with a process that is killed, the directory is gone.
#[derive(Debug)]
pub struct Keeper(Child);

/// Has a directory removed once the keeper is dropped or we are gone. The pipe is closed in children of ours.
pub fn remove_when_gone(dir: &Path) -> io::Result<Keeper> {
    keep(REMOVE, dir.as_os_str())
}

/// A group of programs that are killed if we are gone before them. A shell leads it, which is there before them and after
/// them: whoever is born is born into it, so nobody has to be told of anybody, and its number is nobody else's.
#[derive(Debug)]
pub struct KeptGroup(Keeper);

impl KeptGroup {
    pub fn new() -> io::Result<Self> {
        keep(KILL, "".as_ref()).map(Self)
    }

    /// As [`start`](super::start), in this group. Until the program has joined it, it has our end of the pipe as well:
    /// the shell cannot take us for gone before it would reach the program.
    pub fn start(&self, spec: &ChildSpec<'_>) -> Result<Running, StartError> {
        start_in(spec, Some(self.0.0.id()))
    }

    /// The program is gone by itself: what it left behind is not killed.
    pub fn ended(mut self) {
        if let Some(mut pipe) = self.0.0.stdin.take() {
            // A shell that is gone kills nobody either.
            let _ = pipe.write_all(b"ended\n");
        }
    }
}

fn keep(deed: &str, about: &OsStr) -> io::Result<Keeper> {
    let mut env = Environment::new();
    env.set("PATH", "/usr/local/bin:/usr/bin:/bin");
    let mut command = bare_command(Path::new("/bin/sh"), &env);
    command
        .args(["-c", deed, "sh"])
        .arg(about)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _turn = SPAWNING.lock().unwrap_or_else(PoisonError::into_inner);
    command.spawn().map(Keeper)
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Only a shell that was killed fails, and nobody is left to be told.
        let _ = self.0.wait();
    }
}
