//! A directory that goes when we go, however that happens: a shell waits for the end of a pipe that only we hold.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Stdio};

use super::{Environment, bare_command};

const REMOVE: &str = r#"cat > /dev/null; rm -rf -- "$1""#;

/// Dropped, or with a process that is killed, the directory is gone.
#[derive(Debug)]
pub struct Keeper(Child);

/// Has a directory removed once the keeper is dropped or we are gone. The pipe is closed in children of ours.
pub fn remove_when_gone(dir: &Path) -> io::Result<Keeper> {
    let mut env = Environment::new();
    env.set("PATH", "/usr/local/bin:/usr/bin:/bin");
    let mut command = bare_command(Path::new("/bin/sh"), &env);
    command
        .args(["-c", REMOVE, "sh"])
        .arg(dir)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().map(Keeper)
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Only a shell that was killed fails, and nobody is left to be told.
        let _ = self.0.wait();
    }
}
