//! `terrane render`: reads and checks data, renders templates, encrypts secrets, and updates the generated files
//! without touching files that others wrote.
//!
//! Nothing is written before everything is known: after any error, the files stay as they are. Not here: reading
//! the `render` blocks (`model::project::config`), which action a file needs (`model::render::decide`), SOPS
//! (`drivers::sops`).

mod data;
mod disk;
mod freshness;
mod inputs;
mod jinja;
mod outputs;
mod parallel;
mod re_encrypted;
mod sealing;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use model::base::diagnostic::Finding;
use model::base::error::{ErrorKind, Explain, NextStep, advice, command};
use model::project::Project;
use model::render::Render;
use model::render::decide::{self, FileAction, FileFacts, FileRefusal, OverwriteOptions};
use model::render::manifest::{ReadRenderManifestError, RenderManifest};

pub use self::disk::DiskError;
pub use self::freshness::{StaleRender, check_fresh};
pub use self::re_encrypted::follow;
pub use self::sealing::{KeyChange, KeyChangeKind, SealError};

use self::disk::{ProjectFiles, digest};

/// A request to render.
#[derive(Clone, Debug, Default)]
pub struct RenderRequest {
    /// Names of `render` blocks; empty for all.
    pub names: Vec<String>,
    pub leave: OverwriteOptions,
    /// Compare only; write nothing.
    pub only_look: bool,
}

/// The result of one `render` block.
#[derive(Debug)]
pub struct Rendered {
    pub name: String,
    /// By path from the project's root.
    pub files: BTreeMap<String, RenderedFile>,
    /// Whether the list of digests must be written.
    pub list_changes: bool,
    /// Encrypted files that were only compared by digest, because no key was available.
    pub not_opened: Vec<String>,
    /// Problems that do not stop the rendering.
    pub warnings: Vec<Finding>,
}

impl Rendered {
    /// Whether any file or the list of digests differs from the rendering.
    pub fn differs(&self) -> bool {
        self.list_changes
            || self
                .files
                .values()
                .any(|file| file.action != FileAction::Keep)
    }

    /// Whether any file differs from the rendering, including files that others wrote.
    pub fn files_differ(&self) -> bool {
        let mut files = self.files.values();
        files.any(|file| !matches!(file.action, FileAction::Keep | FileAction::Adopt))
    }
}

#[derive(Debug)]
pub struct RenderedFile {
    pub action: FileAction,
    /// Its template; `None` for a file that is no longer generated.
    pub template: Option<String>,
    pub is_encrypted: bool,
    /// The values that would change, for an existing encrypted file that can be opened.
    pub changes: Option<Vec<KeyChange>>,
    /// The old content of a plain file, to show the difference.
    pub before: Option<Vec<u8>>,
    pub after: Option<Vec<u8>>,
}

#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    #[error("there is no render `{name}`")]
    Unknown { name: String, known: Vec<String> },
    #[error("this project has no `render` block")]
    None,
    #[error("it cannot be rendered")]
    Wrong {
        findings: Vec<Finding>,
        /// The files that the findings point into, without those that hold secrets.
        texts: BTreeMap<String, String>,
    },
    #[error(transparent)]
    Disk(#[from] DiskError),
    #[error("cannot read the list of rendered files `{path}`")]
    Manifest {
        path: String,
        source: ReadRenderManifestError,
    },
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error("`{path}` is created by both `{one}` and `{other}`")]
    Taken {
        path: String,
        one: String,
        other: String,
    },
    #[error("nothing was written: {}", refused(name, files))]
    Refused {
        name: String,
        files: BTreeMap<String, FileRefusal>,
    },
    #[error("could not open the project in `{}`", path.display())]
    Root { path: PathBuf, source: io::Error },
}

impl Explain for RenderError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Unknown { .. } => ErrorKind::Usage,
            Self::Refused { .. } => ErrorKind::Refused,
            _ => ErrorKind::Failed,
        }
    }

    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::None => vec![advice(
                "add `render \"NAME\" { templates = …, data = […], output = … }` to `terrane.hcl`",
            )],
            Self::Unknown { known, .. } => {
                let names: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
                let verb = if known.len() == 1 { "is" } else { "are" };
                vec![advice(format!("there {verb} {}", names.join(", ")))]
            }
            Self::Taken { .. } => vec![advice(
                "a file belongs to one `render` block; `when` or `exclude` removes it from the other",
            )],
            Self::Refused { name, files }
                if files.values().any(|why| *why == FileRefusal::Missing) =>
            {
                vec![
                    advice("`--adopt` only takes over existing files"),
                    command(format!("render {name}"), "creates the missing ones"),
                ]
            }
            Self::Refused { files, .. } if files.values().all(|why| why.is_stale()) => {
                vec![advice(
                    "remove files that you no longer need; `--overwrite` leaves them, and terrane forgets them",
                )]
            }
            Self::Refused { name, .. } => vec![
                command(format!("render {name} --diff"), "shows the difference"),
                command(format!("render {name} --overwrite"), "replaces them"),
            ],
            Self::Seal(source) => source.next_steps(),
            Self::Manifest { .. } => vec![advice(
                "restore the last good one, for example from Git; without it, all files are compared again",
            )],
            Self::Disk(_) | Self::Root { .. } | Self::Wrong { .. } => Vec::new(),
        }
    }
}

/// Renders, and writes unless `only_look` is set.
pub async fn render(
    root: &Path,
    project: &Project,
    env: &BTreeMap<String, String>,
    wanted: &RenderRequest,
) -> Result<Vec<Rendered>, RenderError> {
    let disk = open(root)?;
    let chosen = choose(project, &wanted.names)?;
    let (mut made, mut wrong, mut other) = (Vec::new(), Vec::new(), None);
    let mut all_texts = BTreeMap::new();
    for render in chosen {
        match make(&disk, project, render, env, wanted).await {
            Ok(one) => made.push(one),
            Err(RenderError::Wrong {
                findings, texts, ..
            }) => {
                wrong.extend(findings);
                all_texts.extend(texts);
            }
            Err(err) => other = other.or(Some(err)),
        }
    }
    if !wrong.is_empty() {
        return Err(RenderError::Wrong {
            findings: wrong,
            texts: all_texts,
        });
    }
    if let Some(err) = other {
        return Err(err);
    }
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for one in &made {
        for path in one.outputs.keys() {
            if let Some(other) = owners.insert(path, &one.render.name) {
                return Err(RenderError::Taken {
                    path: path.clone(),
                    one: other.to_owned(),
                    other: one.render.name.clone(),
                });
            }
        }
    }
    for one in &made {
        one.check_others(&disk, project)?;
        if !wanted.only_look {
            one.check_refused()?;
        }
    }
    let mut rendered = Vec::new();
    for one in made {
        if !wanted.only_look {
            one.write(&disk)?;
        }
        rendered.push(one.into_rendered());
    }
    Ok(rendered)
}

fn refused(name: &str, files: &BTreeMap<String, FileRefusal>) -> String {
    if files.values().all(|why| *why == FileRefusal::Missing) {
        format!("not everything is there that `{name}` is to take over")
    } else if files.values().all(|why| why.is_stale()) {
        format!("`{name}` would remove what somebody else wrote")
    } else {
        format!("`{name}` would replace what somebody else wrote")
    }
}

fn open(root: &Path) -> Result<ProjectFiles, RenderError> {
    let real = root.canonicalize().map_err(|source| RenderError::Root {
        path: root.to_owned(),
        source,
    })?;
    Ok(ProjectFiles::new(&real))
}

fn choose<'p>(project: &'p Project, names: &[String]) -> Result<Vec<&'p Render>, RenderError> {
    if project.renders.is_empty() {
        return Err(RenderError::None);
    }
    let mut chosen = Vec::new();
    for name in names {
        let found = project.renders.get(name);
        chosen.push(found.ok_or_else(|| RenderError::Unknown {
            name: name.clone(),
            known: project.renders.keys().cloned().collect(),
        })?);
    }
    if names.is_empty() {
        chosen.extend(project.renders.values());
    }
    chosen.dedup_by(|one, other| one.name == other.name);
    Ok(chosen)
}

/// A file to generate.
pub(crate) struct OutputFile {
    template: String,
    bytes: Vec<u8>,
    is_executable: bool,
    is_encrypted: bool,
    changes: Option<Vec<KeyChange>>,
}

/// The result of one render, before anything is written.
struct PreparedRender<'p> {
    render: &'p Render,
    manifest: Option<RenderManifest>,
    next: RenderManifest,
    outputs: BTreeMap<String, OutputFile>,
    /// The existing files of `outputs` and of the manifest.
    found: BTreeMap<String, (FileFacts, Vec<u8>)>,
    actions: BTreeMap<String, FileAction>,
    not_opened: Vec<String>,
    warnings: Vec<Finding>,
}

async fn make<'p>(
    disk: &ProjectFiles,
    project: &Project,
    render: &'p Render,
    env: &BTreeMap<String, String>,
    wanted: &RenderRequest,
) -> Result<PreparedRender<'p>, RenderError> {
    let manifest = read_manifest(disk, render)?;
    let inputs = inputs::Inputs::read(disk, project, render)?;
    let inputs_digest = inputs.digest();
    let known = manifest
        .as_ref()
        .filter(|known| wanted.only_look && known.inputs == inputs_digest);
    let outputs::GeneratedFiles {
        outputs,
        not_opened,
        warnings,
        read,
    } = outputs::make(disk, render, inputs, env, known, wanted.leave.overwrite).await?;
    if let Some(path) = manifest
        .iter()
        .flat_map(RenderManifest::paths)
        .find(|path| read.contains(*path))
    {
        return Err(RenderError::Manifest {
            path: render.manifest_path(),
            source: ReadRenderManifestError::Foreign(path.to_owned()),
        });
    }
    let listed = manifest.iter().flat_map(RenderManifest::paths);
    let paths: BTreeSet<&str> = outputs.keys().map(String::as_str).chain(listed).collect();
    let mut found = BTreeMap::new();
    for path in paths {
        if let Some(file) = disk.look(path)? {
            found.insert(path.to_owned(), file);
        }
    }
    let facts: BTreeMap<String, FileFacts> = outputs
        .iter()
        .map(|(path, output)| {
            let facts = FileFacts {
                digest: digest(&output.bytes),
                is_executable: output.is_executable,
            };
            (path.clone(), facts)
        })
        .collect();
    let lie = found
        .iter()
        .map(|(path, (facts, _))| (path.clone(), facts.clone()))
        .collect();
    let actions = decide::decide(manifest.as_ref(), &facts, &lie, wanted.leave);
    let digests = facts
        .into_iter()
        .map(|(path, facts)| (path, facts.digest))
        .collect();
    Ok(PreparedRender {
        next: RenderManifest::new(&render.name, inputs_digest, digests),
        render,
        manifest,
        outputs,
        found,
        actions,
        not_opened,
        warnings,
    })
}

fn read_manifest(
    disk: &ProjectFiles,
    render: &Render,
) -> Result<Option<RenderManifest>, RenderError> {
    let path = render.manifest_path();
    let Some((_, bytes)) = disk.look(&path)? else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(&bytes);
    let manifest = RenderManifest::read(&text, &render.output, digest).and_then(|manifest| {
        let input = manifest.paths().find(|path| render.is_input(path));
        match input.map(str::to_owned) {
            Some(input) => Err(ReadRenderManifestError::Foreign(input)),
            None => Ok(manifest),
        }
    });
    match manifest {
        Ok(manifest) => Ok(Some(manifest)),
        Err(source) => Err(RenderError::Manifest { path, source }),
    }
}

impl PreparedRender<'_> {
    /// Refuses a file that another `render` block owns.
    fn check_others(&self, disk: &ProjectFiles, project: &Project) -> Result<(), RenderError> {
        let others = project.renders.values();
        for other in others.filter(|other| other.name != self.render.name) {
            let Some(manifest) = read_manifest(disk, other)? else {
                continue;
            };
            if let Some(path) = self.outputs.keys().find(|path| manifest.owns(path)) {
                return Err(RenderError::Taken {
                    path: path.clone(),
                    one: other.name.clone(),
                    other: self.render.name.clone(),
                });
            }
        }
        Ok(())
    }

    fn check_refused(&self) -> Result<(), RenderError> {
        let refused = self
            .actions
            .iter()
            .filter_map(|(path, action)| match action {
                FileAction::Refuse(why) => Some((path.clone(), *why)),
                _ => None,
            });
        let files: BTreeMap<String, FileRefusal> = refused.collect();
        if files.is_empty() {
            return Ok(());
        }
        Err(RenderError::Refused {
            name: self.render.name.clone(),
            files,
        })
    }

    /// Writes the list of planned files, then the files, then the final list. After a crash, the next rendering
    /// recognises all files as its own.
    fn write(&self, disk: &ProjectFiles) -> Result<(), RenderError> {
        let path = self.render.manifest_path();
        if !self.list_changes()
            && self
                .actions
                .values()
                .all(|action| *action == FileAction::Keep)
        {
            return Ok(());
        }
        let none = || RenderManifest::new(&self.render.name, String::new(), BTreeMap::new());
        let before = self.manifest.clone().unwrap_or_else(none);
        self.sweep(disk, &before)?;
        let lie = self.found.iter();
        let lie = lie.map(|(path, (facts, _))| (path.as_str(), facts.digest.as_str()));
        let coming = before.towards(&self.next, lie);
        disk.write_durably(&path, coming.write(digest).as_bytes())?;
        let mut new: Vec<&String> = Vec::new();
        for (file, action) in &self.actions {
            match action {
                FileAction::Create | FileAction::Change => new.push(file),
                FileAction::Remove => disk.remove(file, &self.render.output)?,
                FileAction::Keep
                | FileAction::Adopt
                | FileAction::Forget
                | FileAction::LetGo
                | FileAction::Refuse(_) => {}
            }
        }
        let written = parallel::each(&new, |file| {
            let output = &self.outputs[*file];
            disk.write(file, &output.bytes, output.is_executable)
        });
        written.into_iter().collect::<Result<(), _>>()?;
        disk.write_durably(&path, self.next.write(digest).as_bytes())?;
        Ok(())
    }

    /// Removes temporary files of a killed rendering: those of the list always, those of other files only while
    /// the list marks them as being written.
    fn sweep(&self, disk: &ProjectFiles, before: &RenderManifest) -> Result<(), RenderError> {
        let list = self.render.manifest_path();
        let files = before
            .paths()
            .chain(self.outputs.keys().map(String::as_str));
        let files = files.filter(|_| !before.writing.is_empty());
        disk.sweep(files.chain([list.as_str()]))?;
        Ok(())
    }

    fn list_changes(&self) -> bool {
        self.manifest.as_ref() != Some(&self.next)
    }

    fn into_rendered(mut self) -> Rendered {
        let list_changes = self.list_changes();
        let files = std::mem::take(&mut self.actions);
        let files = files.into_iter().map(|(path, action)| {
            let output = self.outputs.remove(&path);
            let is_encrypted = match &output {
                Some(output) => output.is_encrypted,
                None => model::render::is_secret_name(&path),
            };
            let before = self.found.remove(&path).map(|(_, bytes)| bytes);
            let file = RenderedFile {
                action,
                is_encrypted,
                changes: output.as_ref().and_then(|output| output.changes.clone()),
                before: before.filter(|_| !is_encrypted),
                template: output.as_ref().map(|output| output.template.clone()),
                after: output.map(|output| output.bytes).filter(|_| !is_encrypted),
            };
            (path, file)
        });
        Rendered {
            name: self.render.name.clone(),
            files: files.collect(),
            list_changes,
            not_opened: self.not_opened,
            warnings: self.warnings,
        }
    }
}
