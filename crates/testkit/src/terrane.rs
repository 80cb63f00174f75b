//! A project in a temporary directory with a home, a cache and an environment of its own.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::{CommandOutput, Terminal, engines};

pub struct TestTerrane {
    dir: TempDir,
    binary: PathBuf,
    env: BTreeMap<String, String>,
}

/// A running command.
pub struct BackgroundCommand {
    child: Child,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl TestTerrane {
    /// `binary` is `env!("CARGO_BIN_EXE_terrane")`. OpenTofu is on its path.
    pub fn new(binary: &str) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("terrane-test-")
            .tempdir()
            .expect("a directory");
        let bin = dir.path().join("bin");
        for made in ["bin", "project", "user"] {
            fs::create_dir(dir.path().join(made)).expect("a directory");
        }
        for (name, program) in engines::all() {
            std::os::unix::fs::symlink(program, bin.join(name)).expect("a link");
        }
        let user = dir.path().join("user").display().to_string();
        let env = [
            (
                "PATH",
                format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display()),
            ),
            ("HOME", user),
            ("LANG", "C.UTF-8".to_owned()),
            (
                "TERRANE_HOME",
                dir.path().join("home").display().to_string(),
            ),
            (
                "XDG_CACHE_HOME",
                dir.path().join("cache").display().to_string(),
            ),
            ("GIT_CONFIG_NOSYSTEM", "1".to_owned()),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value)).into();
        let made = Self {
            dir,
            binary: binary.into(),
            env,
        };
        // With an existing key, the output does not mention that one was created.
        made.write_key();
        made
    }

    fn write_key(&self) {
        let key = "terrane-key-1 test AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
        let path = self.dir.path().join("user/.config/terrane/master.key");
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(&path, key).expect("a key");
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(path, private).expect("a private key");
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    pub fn project(&self) -> PathBuf {
        self.dir.path().join("project")
    }

    pub fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// Writes a file of the project.
    pub fn write(&self, path: &str, text: &str) -> &Self {
        let path = self.project().join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        fs::write(path, text).expect("a file");
        self
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.project().join(path)).expect("a readable file")
    }

    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    #[must_use]
    pub fn without_env(mut self, name: &str) -> Self {
        self.env.remove(name);
        self
    }

    /// Copies an example of the repository into the project.
    pub fn copy_example(&self, name: &str) -> &Self {
        let from = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../examples")
            .join(name);
        copy_dir(&from, &self.project());
        self
    }

    /// Runs a command to its end, in the project's root.
    pub fn cli(&self, args: &[&str]) -> CommandOutput {
        self.cli_in("", args)
    }

    /// Runs a command to its end, in a directory of the project.
    pub fn cli_in(&self, dir: &str, args: &[&str]) -> CommandOutput {
        let output = self.command(dir, args).output().expect("terrane starts");
        CommandOutput {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            code: output.status.code(),
        }
    }

    /// Runs a command to its end with a changed environment, for example as another user.
    pub fn cli_with(&self, env: &[(&str, &str)], args: &[&str]) -> CommandOutput {
        let mut command = self.command("", args);
        let output = command.envs(env.iter().copied()).output();
        let output = output.expect("terrane starts");
        CommandOutput {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            code: output.status.code(),
        }
    }

    /// Starts a command and returns at once.
    pub fn start(&self, name: &str, args: &[&str]) -> BackgroundCommand {
        let stdout = self.dir.path().join(format!("{name}.out"));
        let stderr = self.dir.path().join(format!("{name}.err"));
        let child = self
            .command("", args)
            .stdout(fs::File::create(&stdout).expect("a file"))
            .stderr(fs::File::create(&stderr).expect("a file"))
            .spawn()
            .expect("terrane starts");
        BackgroundCommand {
            child,
            stdout,
            stderr,
        }
    }

    /// Starts a command on a terminal of its own, 100 columns wide.
    pub fn terminal(&self, args: &[&str]) -> Terminal {
        let screen = self.dir.path().join("screen");
        let words: Vec<String> = args.iter().map(|arg| format!("'{arg}'")).collect();
        let line = format!(
            "stty cols 100 rows 30; exec '{}' {}",
            self.binary.display(),
            words.join(" ")
        );
        let child = self
            .bare("script")
            .args(["--quiet", "--flush", "--return", "--command", &line])
            .arg("/dev/null")
            .env("TERM", "xterm")
            .current_dir(self.project())
            .stdin(Stdio::piped())
            .stdout(fs::File::create(&screen).expect("a file"))
            .stderr(Stdio::null())
            .spawn()
            .expect("`script` of util-linux starts");
        Terminal::new(child, screen)
    }

    /// Runs shell lines to their end, in the project's root.
    pub fn shell(&self, lines: &str) -> CommandOutput {
        let mut command = self.bare("bash");
        command.current_dir(self.project()).stdin(Stdio::null());
        let output = command.args(["-c", lines]).output().expect("bash starts");
        CommandOutput {
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            code: output.status.code(),
        }
    }

    pub fn git(&self, args: &[&str]) -> String {
        let settings = [
            "-c",
            "user.name=test",
            "-c",
            "user.email=test@example.io",
            "-c",
            "commit.gpgsign=false",
        ];
        let mut command = self.bare("git");
        command
            .current_dir(self.project())
            .args(settings)
            .args(args);
        let output = command.output().expect("git starts");
        assert!(
            output.status.success(),
            "git {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Makes the project a Git repository, with everything committed.
    pub fn commit_all(&self) -> &Self {
        if !self.project().join(".git").exists() {
            self.git(&["init", "--quiet", "--initial-branch=main"]);
        }
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", "test"]);
        self
    }

    /// Waits for a condition; after a minute, fails the test with `what`.
    #[track_caller]
    pub fn wait_until(&self, what: &str, is_true: impl FnMut() -> bool) {
        crate::wait_until(what, is_true);
    }

    fn command(&self, dir: &str, args: &[&str]) -> Command {
        let mut command = self.bare(&self.binary);
        command
            .current_dir(self.project().join(dir))
            .args(args)
            .stdin(Stdio::null());
        command
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "tests start the program itself, from outside"
    )]
    fn bare(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(&self.env);
        command
    }
}

impl BackgroundCommand {
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn interrupt(&self) {
        self.signal(rustix::process::Signal::INT);
    }

    pub fn terminate(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    pub fn hang_up(&self) {
        self.signal(rustix::process::Signal::HUP);
    }

    pub fn kill(&self) {
        self.signal(rustix::process::Signal::KILL);
    }

    fn signal(&self, signal: rustix::process::Signal) {
        send(self.child.id(), signal);
    }

    /// Whether the command is still running.
    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|ended| ended.is_none())
    }

    /// Its standard output so far.
    pub fn stdout_so_far(&self) -> String {
        fs::read_to_string(&self.stdout).unwrap_or_default()
    }

    /// Its standard error so far.
    pub fn stderr_so_far(&self) -> String {
        fs::read_to_string(&self.stderr).unwrap_or_default()
    }

    /// Waits for its end.
    pub fn wait(mut self) -> CommandOutput {
        let status = self.child.wait().expect("it ends");
        CommandOutput {
            stdout: fs::read_to_string(&self.stdout).unwrap_or_default(),
            stderr: fs::read_to_string(&self.stderr).unwrap_or_default(),
            code: status.code(),
        }
    }
}

/// Kills a process that is not a child of the test, such as a runner.
pub fn kill(pid: u32) {
    send(pid, rustix::process::Signal::KILL);
}

fn send(pid: u32, signal: rustix::process::Signal) {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // The process may already be gone.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy_dir(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a copy");
        }
    }
}
