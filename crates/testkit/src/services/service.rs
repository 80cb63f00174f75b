//! Starts a third-party server for tests: on a free port, waits until it is ready, and stops it at the end of the
//! test process, however that ends.
//!
//! Not here: the servers' options and requests (`postgres`, `minio`, `azurite`, `gcs`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;
use std::{env, fs};

use tempfile::TempDir;

use crate::wait::is_true_within;

/// The server is a child of a shell that reads from a pipe. When the test process ends, even by SIGKILL, the pipe
/// closes. The shell then stops the server and removes its files.
const KEEPER: &str = r#"
remove=$1 signal=$2; shift 2
"$@" < /dev/null &
server=$!
while kill -0 "$server" 2> /dev/null; do
  read -r -t 0.2
  if [ $? -le 128 ]; then kill -s "$signal" "$server"; break; fi
done
wait "$server"
if [ -n "$remove" ]; then rm -rf "$remove"; fi
"#;

/// How to start a server; `PORT` in an argument is replaced by its port.
pub(crate) struct ServiceSpec {
    pub(crate) name: &'static str,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: BTreeMap<&'static str, OsString>,
    /// The signal that stops it at once.
    pub(crate) signal: &'static str,
}

pub(crate) struct Service {
    recipe: ServiceSpec,
    port: u16,
    dir: PathBuf,
    /// Removes the directory, if the test process lives to drop it.
    _dir: Option<TempDir>,
    running: Mutex<Option<Child>>,
}

/// Whether all tests of the process share a server, or one test has its own and may stop it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    Shared,
    Alone,
}

impl Service {
    /// Starts the server and waits until `is_ready` returns true for its port.
    pub(crate) fn start(
        dir: TempDir,
        kept: Sharing,
        recipe: impl Fn(&Path) -> ServiceSpec,
        is_ready: impl Fn(u16) -> bool,
    ) -> Self {
        const ATTEMPTS: usize = 5;
        let path = dir.path().to_owned();
        for _ in 0..ATTEMPTS {
            let recipe = recipe(&path);
            let port = free_port();
            let running = spawn(&recipe, &path, port, kept);
            if let Some(running) = wait(running, port, &is_ready, &log_path(&path), recipe.name) {
                let (keep, own) = match kept {
                    Sharing::Shared => (dir.keep(), None),
                    Sharing::Alone => (path, Some(dir)),
                };
                return Self {
                    recipe,
                    port,
                    dir: keep,
                    _dir: own,
                    running: Mutex::new(Some(running)),
                };
            }
            // It exited: another process took the port in between.
        }
        let said = fs::read_to_string(log_path(&path)).unwrap_or_default();
        panic!("{} does not start:\n{said}", recipe(&path).name);
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Stops the server at once, without a clean shutdown. Its files stay.
    pub(crate) fn stop(&self) {
        if let Some(mut running) = self.running.lock().expect("a lock").take() {
            drop(running.stdin.take());
            running.wait().expect("the server ends");
        }
    }

    /// Starts the server again, on the same port with the same files.
    pub(crate) fn start_again(&self, is_ready: impl Fn(u16) -> bool) {
        let mut running = self.running.lock().expect("a lock");
        assert!(running.is_none(), "{} runs already", self.recipe.name);
        let spawned = spawn(&self.recipe, &self.dir, self.port, Sharing::Alone);
        let log = log_path(&self.dir);
        let again = wait(spawned, self.port, &is_ready, &log, self.recipe.name);
        *running = Some(again.unwrap_or_else(|| {
            let said = fs::read_to_string(log).unwrap_or_default();
            panic!("{} does not start again:\n{said}", self.recipe.name)
        }));
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The program that a variable names, or the one in the cache of `scripts/services.sh`.
pub(crate) fn program(name: &str, variable: &str, cached: &[&str]) -> PathBuf {
    let named = env::var_os(variable).map(PathBuf::from);
    let cache = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let cached = cached.iter().map(|path| match &cache {
        Some(cache) => cache.join("terrane/test-tools").join(path),
        None => PathBuf::from(path),
    });
    named
        .into_iter()
        .chain(cached)
        .find(|path| path.exists())
        .unwrap_or_else(|| {
            panic!("no {name} for tests: run `scripts/services.sh {name}`, or `make test`")
        })
}

/// Whether a plain request gets status `200`.
pub(crate) fn answers(port: u16, text: &str) -> bool {
    request(port, text).is_ok_and(|answer| answer.get(8..12) == Some(" 200"))
}

/// Sends one HTTP/1.0 request and returns the whole answer.
pub(crate) fn request(port: u16, text: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(text.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

pub(crate) fn temp_dir(name: &str) -> TempDir {
    tempfile::Builder::new()
        .prefix(&format!("terrane-{name}-"))
        .tempdir()
        .expect("a directory")
}

/// Runs a program to its end; it must succeed.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|err| panic!("{command:?}: {err}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[expect(
    clippy::disallowed_methods,
    reason = "tests start servers of their own, from outside"
)]
pub(crate) fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    Command::new(program)
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("an address").port()
}

fn log_path(dir: &Path) -> PathBuf {
    dir.join("server.log")
}

fn spawn(recipe: &ServiceSpec, dir: &Path, port: u16, kept: Sharing) -> Child {
    let log = fs::File::options()
        .create(true)
        .append(true)
        .open(log_path(dir))
        .expect("a log");
    let port = port.to_string();
    let args = recipe.args.iter().map(|arg| match arg.to_str() {
        Some(text) => OsString::from(text.replace("PORT", &port)),
        None => arg.clone(),
    });
    let mut command = command("bash");
    command
        .args(["-c", KEEPER, "keeper"])
        .arg(match kept {
            Sharing::Shared => dir.as_os_str(),
            Sharing::Alone => "".as_ref(),
        })
        .arg(recipe.signal)
        .args(args)
        .envs(&recipe.env)
        .stdin(Stdio::piped())
        .stdout(log.try_clone().expect("a log"))
        .stderr(log)
        // Ctrl-C is for the tests; the server stops after them.
        .process_group(0);
    command.spawn().expect("bash starts")
}

/// `None` if it exited before it was ready.
fn wait(
    mut running: Child,
    port: u16,
    is_ready: &impl Fn(u16) -> bool,
    log: &Path,
    name: &str,
) -> Option<Child> {
    let mut has_ended = false;
    let is_in_time = is_true_within(Duration::from_mins(2), || {
        let is_ready = is_ready(port);
        has_ended = !is_ready && running.try_wait().expect("a child").is_some();
        is_ready || has_ended
    });
    assert!(
        is_in_time,
        "{name} never became ready:\n{}",
        fs::read_to_string(log).unwrap_or_default()
    );
    (!has_ended).then_some(running)
}
