//! The manifests of an installation: files of the project, output of `helm` or `kustomize`, or the agent's release.
//! The digest in the project file pins them.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use drivers::kubernetes::{FetchManifestError, fetch_manifest};
use drivers::process::{Capture, CaptureError, capture, find_program};
use drivers::snapshot::sha256;
use model::base::error::{Explain, NextStep, advice};
use model::base::secret::Secret;
use model::stage::bootstrap::{Agent, AgentKind};
use model::stage::kubernetes::{ManifestError, documents};
use serde_json::Value;

use crate::stage::cluster::ClusterContext;

const RENDERING: Duration = Duration::from_mins(2);
const MAX_SIZE: usize = 32 << 20;

#[derive(Debug, thiserror::Error)]
pub(super) enum ManifestsError {
    #[error("could not read `{path}`")]
    Read { path: String, source: io::Error },
    #[error("there are no manifests in `{path}`")]
    Empty { path: String },
    #[error("`{path}` is larger than 32 MB")]
    TooLong { path: String },
    #[error("`{path}` is not a manifest")]
    Manifest { path: String, source: ManifestError },
    #[error("`{path}` is {what}, and no program that renders it is on PATH")]
    NoRenderer {
        path: String,
        what: &'static str,
        hint: &'static str,
    },
    #[error("could not render `{path}`")]
    Render { path: String, source: CaptureError },
    #[error("could not render `{path}`: {said}")]
    Rendering { path: String, said: String },
    #[error("the manifests of {agent} are not pinned by a digest")]
    NotPinned { agent: &'static str, seen: String },
    #[error("{agent} would be installed from `{seen}`, not from `{expected}`")]
    Digest {
        agent: &'static str,
        expected: String,
        seen: String,
    },
    #[error("could not fetch the manifests of {agent} {version}")]
    Fetch {
        agent: &'static str,
        version: String,
        source: FetchManifestError,
    },
}

impl Explain for ManifestsError {
    fn next_steps(&self) -> Vec<NextStep> {
        vec![advice(match self {
            Self::NoRenderer { hint, .. } => (*hint).to_owned(),
            Self::NotPinned { seen, .. } => {
                format!("review it, then set `digest = \"{seen}\"` in the `bootstrap` block")
            }
            Self::Digest { seen, .. } => {
                format!("if the manifests changed on purpose, set `digest = \"{seen}\"`")
            }
            Self::Empty { .. } => "only `.yaml`, `.yml` and `.json` files count".to_owned(),
            Self::Fetch { .. } => {
                "to work without the network, add them to the project and name the file in `manifests`".to_owned()
            }
            _ => return Vec::new(),
        })]
    }
}

pub(super) struct LoadedManifests {
    pub(super) objects: Vec<Value>,
    /// Their origin, for the evidence.
    pub(super) note: String,
}

/// All objects of an installation.
pub(super) async fn of_agent(
    agent: &Agent,
    cluster: ClusterContext<'_>,
) -> Result<LoadedManifests, ManifestsError> {
    let mut texts = Vec::new();
    for path in &agent.manifests {
        texts.extend(rendered(path, agent, cluster).await?);
    }
    if agent.manifests.is_empty() {
        texts.push(released(agent, cluster).await?);
    }
    let whole: Vec<u8> = texts.iter().flat_map(|(_, text)| text.bytes()).collect();
    let seen = format!("sha256:{}", sha256(&whole));
    match &agent.digest {
        None => {
            return Err(ManifestsError::NotPinned {
                agent: agent.kind.title(),
                seen,
            });
        }
        Some(expected) if *expected != seen => {
            return Err(ManifestsError::Digest {
                agent: agent.kind.title(),
                expected: expected.clone(),
                seen,
            });
        }
        Some(_) => {}
    }
    Ok(LoadedManifests {
        objects: objects(&texts)?,
        note: format!("installed from `{seen}`"),
    })
}

/// All objects of the root manifests. Git pins them.
pub(super) async fn of_root(
    agent: &Agent,
    cluster: ClusterContext<'_>,
) -> Result<Vec<Value>, ManifestsError> {
    let mut texts = Vec::new();
    for path in &agent.root {
        texts.extend(rendered(path, agent, cluster).await?);
    }
    objects(&texts)
}

fn objects(texts: &[(String, String)]) -> Result<Vec<Value>, ManifestsError> {
    let mut all = Vec::new();
    for (path, text) in texts {
        let found = documents(text).map_err(|source| ManifestsError::Manifest {
            path: path.clone(),
            source,
        })?;
        all.extend(found);
    }
    Ok(all)
}

/// The texts at a path of the project, each with its origin.
async fn rendered(
    path: &str,
    agent: &Agent,
    cluster: ClusterContext<'_>,
) -> Result<Vec<(String, String)>, ManifestsError> {
    let at = cluster.source.join(path);
    let is_chart =
        at.extension().is_some_and(|ending| ending == "tgz") || at.join("Chart.yaml").is_file();
    if is_chart {
        let text = chart(path, agent, cluster).await?;
        return Ok(vec![(path.to_owned(), text)]);
    }
    let kustomizations = ["kustomization.yaml", "kustomization.yml", "Kustomization"];
    if kustomizations.iter().any(|name| at.join(name).is_file()) {
        let text = kustomized(path, cluster).await?;
        return Ok(vec![(path.to_owned(), text)]);
    }
    let mut files = Vec::new();
    collect(&at, &mut files).map_err(|source| ManifestsError::Read {
        path: path.to_owned(),
        source,
    })?;
    if files.is_empty() {
        return Err(ManifestsError::Empty {
            path: path.to_owned(),
        });
    }
    files.into_iter().map(|file| read(&file, cluster)).collect()
}

fn read(file: &Path, cluster: ClusterContext<'_>) -> Result<(String, String), ManifestsError> {
    let shown = file.strip_prefix(cluster.source).unwrap_or(file);
    let path = shown.display().to_string();
    let text = fs::read_to_string(file).map_err(|source| ManifestsError::Read {
        path: path.clone(),
        source,
    })?;
    if text.len() > MAX_SIZE {
        return Err(ManifestsError::TooLong { path });
    }
    Ok((path, text))
}

/// A file, or the manifests of a directory and those below it, sorted.
fn collect(at: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if !at.is_dir() {
        // Reading it reports that it is missing.
        files.push(at.to_owned());
        return Ok(());
    }
    let mut entries: Vec<PathBuf> = fs::read_dir(at)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    entries.sort();
    for entry in entries {
        let extension = entry.extension().and_then(|ending| ending.to_str());
        if entry.is_dir() {
            collect(&entry, files)?;
        } else if matches!(extension, Some("yaml" | "yml" | "json")) {
            files.push(entry);
        }
    }
    Ok(())
}

async fn chart(
    path: &str,
    agent: &Agent,
    cluster: ClusterContext<'_>,
) -> Result<String, ManifestsError> {
    let helm = program("helm", cluster).ok_or_else(|| ManifestsError::NoRenderer {
        path: path.to_owned(),
        what: "a chart",
        hint: "install `helm`, or put what `helm template` says into the project",
    })?;
    let mut args: Vec<OsString> = ["template", agent.kind.word()].map(OsString::from).into();
    args.push(cluster.source.join(path).into());
    args.extend(["--include-crds", "--no-hooks", "--namespace"].map(OsString::from));
    args.push((&agent.namespace).into());
    for values in &agent.values {
        args.push("--values".into());
        args.push(cluster.source.join(values).into());
    }
    render(&helm, &args, path, cluster).await
}

async fn kustomized(path: &str, cluster: ClusterContext<'_>) -> Result<String, ManifestsError> {
    let at: OsString = cluster.source.join(path).into();
    if let Some(kustomize) = program("kustomize", cluster) {
        return render(&kustomize, &["build".into(), at], path, cluster).await;
    }
    let kubectl = program("kubectl", cluster).ok_or_else(|| ManifestsError::NoRenderer {
        path: path.to_owned(),
        what: "a kustomization",
        hint: "install `kustomize` or `kubectl`, or put what `kustomize build` says into the project",
    })?;
    render(&kubectl, &["kustomize".into(), at], path, cluster).await
}

fn program(name: &str, cluster: ClusterContext<'_>) -> Option<PathBuf> {
    let path = cluster.env.get("PATH").map(Secret::expose)?;
    find_program(name, path.as_ref())
}

async fn render(
    program: &Path,
    args: &[OsString],
    path: &str,
    cluster: ClusterContext<'_>,
) -> Result<String, ManifestsError> {
    let call = Capture {
        timeout: RENDERING,
        limit: MAX_SIZE,
        ..Capture::new(program, args, cluster.source, cluster.env)
    };
    let said = capture(call)
        .await
        .map_err(|source| ManifestsError::Render {
            path: path.to_owned(),
            source,
        })?;
    if said.exit.success() {
        return Ok(said.stdout_text());
    }
    Err(ManifestsError::Rendering {
        path: path.to_owned(),
        said: format!("{}: {}", said.exit, said.stderr_text()),
    })
}

/// The agent's release, checked against its digest and cached by it.
async fn released(
    agent: &Agent,
    cluster: ClusterContext<'_>,
) -> Result<(String, String), ManifestsError> {
    let failed = |source| ManifestsError::Fetch {
        agent: agent.kind.title(),
        version: agent.version.clone(),
        source,
    };
    let place = place(agent);
    let digest = agent.digest.clone().unwrap_or_default();
    let kept = cluster
        .cache
        .join("manifests")
        .join(format!("{}.yaml", digest.replace(':', "-")));
    if let Ok(text) = fs::read_to_string(&kept)
        && format!("sha256:{}", sha256(text.as_bytes())) == digest
    {
        return Ok((place, text));
    }
    let text = fetch_manifest(&place).await.map_err(failed)?;
    if format!("sha256:{}", sha256(text.as_bytes())) == digest {
        // The cache is only for speed.
        let _ = kept.parent().map(fs::create_dir_all);
        let _ = fs::write(&kept, &text);
    }
    Ok((place, text))
}

fn place(agent: &Agent) -> String {
    let version = &agent.version;
    match agent.kind {
        AgentKind::Argocd => format!(
            "https://raw.githubusercontent.com/argoproj/argo-cd/{version}/manifests/install.yaml"
        ),
        AgentKind::Flux => {
            format!("https://github.com/fluxcd/flux2/releases/download/{version}/install.yaml")
        }
    }
}
