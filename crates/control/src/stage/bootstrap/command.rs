//! `bootstrap "command"`: a program of the project, with outputs in its environment.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use drivers::process::{Capture, DirGuard, Exit, find_program, remove_on_exit, run_with_tail};
use model::base::duration::seconds;
use model::base::error::one_line;
use model::base::masking::Mask;
use model::base::secret::Secret;
use model::stage::bootstrap::CommandStep;

use super::{StepFailure, StepResult};
use crate::home::write_private;
use crate::program_output::output_tail::OutputTail;
use crate::stage::cluster::ClusterContext;

/// How many lines of its output are kept, and how many bytes are searched for secrets.
const KEPT_LINES: usize = 20;
const MAX_SAID: usize = 1 << 20;

pub(super) async fn run(
    step: &CommandStep,
    kubeconfig: Option<&Secret>,
    cluster: ClusterContext<'_>,
    limit: Duration,
    mask: &Mask,
) -> Result<StepResult, StepFailure> {
    let mut env = cluster.env.clone();
    for (name, value) in &step.env {
        env.set_secret(name, value.clone());
    }
    let file = kubeconfig.map(KubeconfigFile::new).transpose()?;
    if let Some(file) = &file {
        env.set("KUBECONFIG", file.path.to_string_lossy());
    }
    let (name, args) = step
        .run
        .split_first()
        .ok_or_else(|| StepFailure::new("no program is named"))?;
    let path = env.get("PATH").map(Secret::expose).unwrap_or_default();
    let program = locate(name, path, cluster.source).ok_or_else(|| StepFailure {
        hint: Some("a program of the project is named by its path: `./scripts/step.sh`".to_owned()),
        ..StepFailure::new(format!("there is no program `{name}`"))
    })?;
    let args: Vec<OsString> = args.iter().map(OsString::from).collect();
    let call = Capture {
        timeout: limit,
        limit: MAX_SAID,
        held: cluster.held,
        ..Capture::new(&program, &args, cluster.source, &env)
    };
    let ended = run_with_tail(call).await;
    let ended = ended.map_err(|err| StepFailure::new(one_line(&err)))?;
    let how = match &ended.exit {
        Some(exit) => format!("`{name}` ended with {exit}"),
        None => format!("`{name}` did not end within {}", seconds(limit)),
    };
    let mut notes = vec![how.clone()];
    for output in [&ended.stdout, &ended.stderr] {
        let words = OutputTail {
            output,
            limit: MAX_SAID,
            was_stopped: ended.exit.is_none(),
        };
        notes.extend(end_of(&words.masked(&[mask])));
    }
    let done = StepResult {
        notes,
        ..StepResult::default()
    };
    if ended.exit.is_some_and(Exit::success) {
        return Ok(done);
    }
    Err(StepFailure {
        done,
        ..StepFailure::new(how)
    })
}

fn locate(name: &str, path: &str, source: &Path) -> Option<PathBuf> {
    if !name.contains('/') {
        return find_program(name, path.as_ref());
    }
    Some(source.join(name)).filter(|program| program.is_file())
}

/// A kubeconfig as a private file in memory, removed with the step, also if terrane is killed.
struct KubeconfigFile {
    path: PathBuf,
    _keeper: DirGuard,
}

impl KubeconfigFile {
    fn new(kubeconfig: &Secret) -> Result<Self, StepFailure> {
        let place = Path::new("/dev/shm");
        let refused = |why: String| StepFailure {
            hint: Some(
                "hand it to the program in `env`, without `kubeconfig`, and let it keep it"
                    .to_owned(),
            ),
            ..StepFailure::new(why)
        };
        if !place.is_dir() {
            return Err(refused(
                "this machine has no place in memory for the kubeconfig".to_owned(),
            ));
        }
        let written = || {
            let dir = tempfile::Builder::new()
                .prefix("terrane-")
                .tempdir_in(place)?;
            let keeper = remove_on_exit(dir.path())?;
            let path = dir.keep().join("kubeconfig");
            write_private(&path, kubeconfig.expose().as_bytes())?;
            Ok::<_, std::io::Error>(Self {
                path,
                _keeper: keeper,
            })
        };
        written().map_err(|err| refused(format!("could not keep the kubeconfig in memory: {err}")))
    }
}

fn end_of(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    let from = lines.len().saturating_sub(KEPT_LINES);
    lines[from..]
        .iter()
        .map(|line| (*line).to_owned())
        .collect()
}
