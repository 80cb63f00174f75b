//! What goes when we go, however that happens, a directory or a program: a shell waits for the end of a pipe that only
//! we hold.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::PoisonError;

use super::{Environment, SPAWNING, bare_command};

const REMOVE: &str = r#"cat > /dev/null; rm -rf -- "$1""#;
const KILL: &str = r#"read -r pid || exit 0; read -r word; [ "$word" = ended ] || kill -9 "-$pid""#;

/// Dropped, or with a process that is killed, the directory is gone.
#[derive(Debug)]
pub struct Keeper(Child);

/// Has a directory removed once the keeper is dropped or we are gone. The pipe is closed in children of ours.
pub fn remove_when_gone(dir: &Path) -> io::Result<Keeper> {
    keep(REMOVE, dir.as_os_str())
}

/// Has a program that leads a group killed, and its group, if we are gone before it. It is made before the program is
/// born, and [told](Keeper::watch) which it is then; who sees it end [says so](Keeper::ended).
pub fn kill_when_gone() -> io::Result<Keeper> {
    keep(KILL, "".as_ref())
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

impl Keeper {
    /// This is the program.
    pub fn watch(&mut self, pid: u32) -> io::Result<()> {
        let pipe = self.0.stdin.as_mut();
        pipe.map_or(Ok(()), |pipe| writeln!(pipe, "{pid}"))
    }

    /// The program is gone by itself: nobody is killed, whose number it might be by now.
    pub fn ended(mut self) {
        if let Some(mut pipe) = self.0.stdin.take() {
            // A shell that is gone kills nobody either.
            let _ = pipe.write_all(b"ended\n");
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Only a shell that was killed fails, and nobody is left to be told.
        let _ = self.0.wait();
    }
}
