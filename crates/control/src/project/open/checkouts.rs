//! Records which project each checkout was last used as. Otherwise a changed or removed `project.id` would
//! lead to an empty home, and an apply would create everything a second time.
//!
//! There is one small file per checkout: `<home>/checkouts/<digest>` in a named home, else `<data
//! directory>/.checkouts/<digest>`. Without the file there is no check; nothing else depends on it.
//!
//! Not here: which id a project has (`project::open`).

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use drivers::git::Repository;
use model::base::error::{ErrorKind, Explain, NextStep, advice};
use model::state::Contents;
use serde::{Deserialize, Serialize};

use super::{OpenProject, ProjectIdSource};
use crate::home::{Home, HomeLocation, HomeSettings, make_private};

#[derive(Debug, thiserror::Error)]
#[error(
    "cannot use the project id `{now}`{}: this checkout was last used with the id `{before}` (project `{name}`), \
     whose states are in `{home}`, and everything in them would be created again",
    match from {
        ProjectIdSource::Written => "",
        ProjectIdSource::GitDirectory | ProjectIdSource::Path => " (derived, because terrane.hcl has no `id`)",
    }
)]
pub struct ProjectIdChanged {
    pub before: String,
    pub now: String,
    from: ProjectIdSource,
    name: String,
    home: String,
}

impl Explain for ProjectIdChanged {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Refused
    }

    fn next_steps(&self) -> Vec<NextStep> {
        vec![
            advice(format!(
                "to keep them, write `id = \"{}\"` in the project block",
                self.before
            )),
            advice("if it is meant to be a new project: `terrane plan --new-project`"),
        ]
    }
}

/// The last use of a checkout, as it is stored.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LastUse {
    /// For people who read the file.
    checkout: PathBuf,
    id: String,
    name: String,
    /// When the checkout's directory was created, in nanoseconds since 1970, if the file system provides it.
    created: Option<u64>,
}

impl LastUse {
    /// `None` if the project file cannot be read.
    fn of(open: &OpenProject) -> Option<Self> {
        let project = open.loaded.project.as_ref()?;
        let common = open.git.as_ref().map(Repository::common_dir);
        let created = std::fs::metadata(common.unwrap_or(&open.root)).and_then(|dir| dir.created());
        let created = created
            .ok()
            .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        Some(Self {
            checkout: open.checkout.clone(),
            id: open.identity.id.clone(),
            name: project.name.clone(),
            created: created.and_then(|since| u64::try_from(since.as_nanos()).ok()),
        })
    }

    /// Whether another project uses this path now: CI jobs of several projects often work in the same
    /// directory.
    fn is_another_checkout(&self, now: &Self) -> bool {
        self.name != now.name && (self.created != now.created || self.created.is_none())
    }
}

/// Fails if this checkout was last used with another project id that has states of the same stacks, and the
/// current id has none.
pub async fn check(settings: &HomeSettings, open: &OpenProject) -> Result<(), ProjectIdChanged> {
    let id = &open.identity.id;
    let (Some(last), Some(now)) = (read(&file(settings, open)), LastUse::of(open)) else {
        return Ok(());
    };
    if last.id == *id || last.is_another_checkout(&now) {
        return Ok(());
    }
    let present = states(settings.home_of(id)).await;
    if present.is_none_or(|present| !present.is_empty()) {
        return Ok(()); // both ids are in use, for example from two branches
    }
    let before = settings.home_of(&last.id);
    let home = before.store().describe();
    let project = open.loaded.project.as_ref();
    let is_of_stack = |name: &String| {
        project.is_some_and(|project| project.stacks.values().any(|stack| stack.state == *name))
    };
    let kept = states(before).await;
    if kept.is_some_and(|kept| !kept.iter().any(is_of_stack)) {
        return Ok(());
    }
    Err(ProjectIdChanged {
        before: last.id,
        now: id.clone(),
        from: open.identity.from,
        name: last.name,
        home,
    })
}

/// Records that this checkout is used with its current id.
pub fn record(settings: &HomeSettings, open: &OpenProject) -> io::Result<()> {
    let file = file(settings, open);
    let Some(now) = LastUse::of(open).filter(|now| read(&file).as_ref() != Some(now)) else {
        return Ok(());
    };
    let dir = file.parent().unwrap_or(&file);
    make_private(dir)?;
    let mut aside = tempfile::NamedTempFile::new_in(dir)?;
    serde_json::to_writer(&mut aside, &now)?;
    aside.persist(&file)?;
    Ok(())
}

fn file(settings: &HomeSettings, open: &OpenProject) -> PathBuf {
    let dir = match &settings.named_home {
        Some(HomeLocation::Directory(home)) => home.join("checkouts"),
        // No project id begins with a dot.
        Some(HomeLocation::Shared(_)) | None => settings.data_dir.join(".checkouts"),
    };
    dir.join(drivers::snapshot::sha256(
        open.checkout.as_os_str().as_encoded_bytes(),
    ))
}

fn read(file: &Path) -> Option<LastUse> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

/// The states of a project that contain resources; `None` if its home cannot be opened.
async fn states(home: Home) -> Option<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    let database = home.store().directory().map(|dir| dir.join("terrane.db"));
    if database.is_some_and(|file| !file.exists()) {
        return Some(found); // opening it would create it
    }
    let project = home.project().to_owned();
    let store = home.open().await.ok()?.store;
    for row in store.state_list().await.ok()? {
        if row.name.project != project {
            continue;
        }
        let head = store.state_head(&row.name).await.ok()?;
        if head.is_some_and(|head| head.contents == Contents::Resources) {
            found.insert(row.name.name);
        }
    }
    Some(found)
}
