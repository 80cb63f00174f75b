//! An engine built from source through the Go module proxy, where releases cannot be reached. `tofu`
//! only: its licence allows it and its module builds as it is.
//!
//! The proxy's checksum database (or `go.sum` of a private proxy) vouches for the source.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use semver::Version;
use serde::Deserialize;

use super::install::Progress;
use crate::process::{self, Capture, CaptureError, Captured, Environment};

const MODULE: &str = "github.com/opentofu/opentofu";

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("building `tofu` needs the program `go`, which is not on `PATH`")]
    NoGo,
    #[error("could not run `go {deed}`")]
    Run {
        deed: &'static str,
        source: CaptureError,
    },
    #[error("`go {deed}` ended with {exit}: {said}")]
    Failed {
        deed: &'static str,
        exit: process::Exit,
        said: String,
    },
    #[error("`go mod download` did not say where the source is")]
    NoSource,
    #[error("could not copy the source from `{}`", from.display())]
    Copy { from: PathBuf, source: io::Error },
}

impl BuildError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoGo => Some(
                "install Go (https://go.dev/dl, or your system's package `golang`) or put a suitable `tofu` on `PATH`"
                    .to_owned(),
            ),
            Self::Run { .. } | Self::Failed { .. } | Self::NoSource | Self::Copy { .. } => None,
        }
    }
}

/// Builds `tofu` of this version into `dir`, in a few minutes. `asker` gives `PATH`, proxies and Go's own
/// settings.
pub(super) async fn build_tofu(
    version: &Version,
    dir: &Path,
    asker: &BTreeMap<String, String>,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<PathBuf, BuildError> {
    let env = go_environment(asker);
    let path = asker.get("PATH").map(String::as_str).unwrap_or_default();
    let go = process::find_program("go", path.as_ref())
        .or_else(|| process::find_program("go", "/usr/local/go/bin".as_ref()))
        .ok_or(BuildError::NoGo)?;

    progress(Progress::FetchingSource);
    let module = format!("{MODULE}@v{version}");
    let said = run(
        &go,
        "mod download",
        &["mod", "download", "-json", &module],
        dir,
        &env,
    )
    .await?;
    let source = source_dir(&said.stdout).ok_or(BuildError::NoSource)?;

    let copy = dir.join("source");
    copy_tree(&source, &copy).map_err(|err| BuildError::Copy {
        from: source,
        source: err,
    })?;
    let program = dir.join("tofu");
    let output = program.to_string_lossy();
    let flags = format!("-s -w -X {MODULE}/version.dev=no");
    let args = [
        "build",
        "-trimpath",
        "-ldflags",
        &flags,
        "-o",
        &output,
        "./cmd/tofu",
    ];
    progress(Progress::Compiling);
    run(&go, "build", &args, &copy, &env).await?;
    // Leftovers cost space, nothing else.
    let _ = fs::remove_dir_all(copy);
    Ok(program)
}

fn source_dir(said: &[u8]) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct Module {
        #[serde(rename = "Dir")]
        dir: PathBuf,
    }
    serde_json::from_slice(said).ok().map(|it: Module| it.dir)
}

async fn run(
    go: &Path,
    deed: &'static str,
    args: &[&str],
    dir: &Path,
    env: &Environment,
) -> Result<Captured, BuildError> {
    let args: Vec<OsString> = args.iter().map(OsString::from).collect();
    let said = process::capture(Capture {
        timeout: Duration::from_hours(1),
        ..Capture::new(go, &args, dir, env)
    })
    .await
    .map_err(|source| BuildError::Run { deed, source })?;
    if said.exit.success() {
        return Ok(said);
    }
    // `mod download -json` complains on stdout.
    let complaint = [said.stderr_text(), said.stdout_text()].concat();
    let lines: Vec<&str> = complaint.lines().collect();
    let last = lines
        .get(lines.len().saturating_sub(12)..)
        .unwrap_or_default();
    Err(BuildError::Failed {
        deed,
        exit: said.exit,
        said: last.join("\n"),
    })
}

/// What Go may see: where to find things, proxies, and its own settings.
fn go_environment(asker: &BTreeMap<String, String>) -> Environment {
    let mut env = process::engine_environment(asker, false);
    for (name, value) in asker {
        if name.starts_with("GO") || name.starts_with("XDG_CACHE") || name == "SSL_CERT_FILE" {
            env.set(name.clone(), value);
        }
    }
    // A miss would become a slow attempt with Git.
    if let Some(proxy) = asker.get("GOPROXY") {
        env.set("GOPROXY", proxy.trim_end_matches(",direct"));
    }
    env.set("CGO_ENABLED", "0");
    env.set("GOTOOLCHAIN", "local");
    env.set("GOFLAGS", "-mod=mod");
    env
}

/// The module cache is read-only; the build wants to write beside its source.
fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            // Bytes only: the copy gets a mode that can be written.
            fs::write(&target, fs::read(entry.path())?)?;
        }
    }
    Ok(())
}
