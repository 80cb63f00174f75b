//! Programs that a test writes and then runs.
//!
//! A child process writes them. If this process had the file open for writing, a child that another test starts at
//! that moment would inherit the descriptor. The program could then not be run until that child's exec
//! (`ETXTBSY`).

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes an executable file with this text.
#[expect(
    clippy::disallowed_methods,
    reason = "a child of the test's own writes it"
)]
pub fn write_program(path: &Path, text: &str) {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).expect("a directory for the program");
    }
    let mut writer = Command::new("sh")
        .args(["-c", "rm -f \"$0\" && cat > \"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut input = writer.stdin.take().expect("its input");
    input.write_all(text.as_bytes()).expect("the text");
    drop(input);
    assert!(
        writer.wait().expect("its end").success(),
        "{}",
        path.display()
    );
}

/// An executable copy of a program.
#[expect(
    clippy::disallowed_methods,
    reason = "a child of the test's own writes it"
)]
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status();
    assert!(copied.expect("a copy").success(), "{}", to.display());
}
