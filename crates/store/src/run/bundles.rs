//! Bundles: files that transfer plans from one home to another. Each has its own key, which is wrapped by a
//! master key. Any home with that master key can open the bundle.
//!
//! Not here: what is in it (`control::changeset::bundle`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use model::base::ids::ChangeSetId;
use model::run::changeset::{ChangeSet, Request, Status};
use model::run::{RunEvent, RunSpec};
use serde::{Deserialize, Serialize};

use crate::crypto::Key;
use crate::crypto::{self, UnsealError, header_line, open_file, seal_file};
use crate::db::{Row, Value};
use crate::key::data_keys::KeyError;
use crate::key::keyring::Keyring;
use crate::run::change_sets::{self};
use crate::run::records::{ChangeSetError, to_json};
use crate::run::runs;
use crate::{Store, StoreError, blocking};

#[cfg(test)]
mod tests;

const FORMAT: u32 = 1;

/// The first bytes of every bundle.
const MAGIC: &[u8] = br#"{"terrane":"bundle","#;

/// Whether a file that starts with these bytes is meant to be a bundle.
pub fn is_bundle(start: &[u8]) -> bool {
    start.starts_with(MAGIC)
}

#[derive(Debug, thiserror::Error)]
pub enum OpenBundleError {
    #[error("the file is not a bundle, or it is truncated")]
    Shape,
    #[error("the bundle has format {found}, but this terrane reads format {FORMAT}")]
    Format { found: u32 },
    #[error(
        "the bundle belongs to the project with the id `{found}`, but this project has the id `{expected}`"
    )]
    Foreign { found: String, expected: String },
    #[error("the bundle was sealed with master key `{needed}`; the current one is `{given}`")]
    OtherMaster { needed: String, given: String },
    #[error("the bundle was modified or truncated")]
    Changed,
    #[error("an internal task ended early")]
    Interrupted,
}

/// The first line: plain, and authenticated with the rest.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    terrane: String,
    format: u32,
    project: String,
    id: String,
    /// The master key that wraps the bundle's key.
    master: String,
    key: String,
}

impl Store {
    /// Seals a bundle of this project under the given id.
    pub async fn bundle_seal(
        &self,
        project: &str,
        id: &str,
        plain: Vec<u8>,
    ) -> Result<Vec<u8>, StoreError> {
        let (keys, project, id) = (self.keys.clone(), project.to_owned(), id.to_owned());
        blocking(move || Ok(seal(&keys.keyring(), &project, &id, &plain)?)).await
    }

    /// The id and content of a bundle. Fails if it belongs to another project or was modified.
    pub async fn bundle_open(
        &self,
        project: &str,
        file: Vec<u8>,
    ) -> Result<(String, Vec<u8>), OpenBundleError> {
        let (keys, project) = (self.keys.clone(), project.to_owned());
        let opened = blocking(move || Ok(open(&keys.keyring(), &project, file))).await;
        opened.unwrap_or(Err(OpenBundleError::Interrupted))
    }

    /// Stores a request whose plans were made elsewhere, in one commit with the past events of each run.
    pub async fn change_set_insert_planned(
        &self,
        request: &Request,
        planned: Vec<(RunSpec, Vec<RunEvent>)>,
        now: Timestamp,
    ) -> Result<BundleInsertion, ChangeSetError> {
        let (specs, events): (Vec<RunSpec>, Vec<Vec<RunEvent>>) = planned.into_iter().unzip();
        let mut tx = self.db.begin_write().await?;
        if let Some(bundle) = &request.bundle {
            let rows = tx.fetch_all(OF_BUNDLE, &[of_bundle(&bundle.id)]).await?;
            let open = read_of_bundle(&rows, &bundle.id)?;
            let mut open = open.into_iter().filter(|set| !set.status.is_over());
            if let Some(set) = open.next() {
                return Ok(BundleInsertion::Before(set.id));
            }
        }
        let id = change_sets::insert(&mut tx, request, &specs, now).await?;
        let mut members = runs::list(&mut tx, id).await?;
        let ids: Vec<_> = members.iter().map(|run| run.id).collect();
        for (run, events) in ids.into_iter().zip(events) {
            for event in events {
                runs::record(&mut tx, &mut members, run, event, now).await?;
            }
        }
        tx.commit().await?;
        Ok(BundleInsertion::Now(id))
    }

    /// Transfers a change set to another machine while it waits for confirmation, since nothing of it runs
    /// then. False if it no longer waits.
    pub async fn change_set_take_over(
        &self,
        id: ChangeSetId,
        machine: &str,
        specs: &[RunSpec],
    ) -> Result<bool, ChangeSetError> {
        let mut tx = self.db.begin_write().await?;
        let mut set = change_sets::get(&mut tx, id).await?;
        if set.status != Status::AwaitingConfirm {
            return Ok(false);
        }
        machine.clone_into(&mut set.request.machine);
        let request = to_json(&set.request, "a change set")?;
        tx.execute(
            "UPDATE change_set SET request = $2 WHERE id = $1",
            &[id.into(), request.into()],
        )
        .await?;
        for (run, spec) in runs::list(&mut tx, id).await?.iter().zip(specs) {
            tx.execute(
                "UPDATE run SET spec = $2 WHERE id = $1",
                &[run.id.into(), to_json(spec, "a run")?.into()],
            )
            .await?;
        }
        tx.commit().await?;
        Ok(true)
    }

    /// The change sets that apply this bundle, oldest first.
    pub async fn change_set_list_of_bundle(
        &self,
        bundle: &str,
    ) -> Result<Vec<ChangeSet>, ChangeSetError> {
        let rows = self.db.fetch_all(OF_BUNDLE, &[of_bundle(bundle)]).await?;
        read_of_bundle(&rows, bundle)
    }
}

/// The result of inserting the change set of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BundleInsertion {
    Now(ChangeSetId),
    /// An open change set already applies the bundle.
    Before(ChangeSetId),
}

const OF_BUNDLE: &str = "SELECT id, status, request, created_at FROM change_set \
    WHERE request LIKE $1 ORDER BY id";

/// A text pattern that preselects change sets, since few of them have a bundle.
fn of_bundle(bundle: &str) -> Value {
    format!("%\"bundle\":{{\"id\":\"{bundle}\"%").into()
}

fn read_of_bundle(rows: &[Row], bundle: &str) -> Result<Vec<ChangeSet>, ChangeSetError> {
    let mut sets = Vec::new();
    for row in rows {
        let set = change_sets::read(row)?;
        let own = set.request.bundle.as_ref();
        if own.is_some_and(|own| own.id == bundle) {
            sets.push(set);
        }
    }
    Ok(sets)
}

fn seal(keyring: &Keyring, project: &str, id: &str, plain: &[u8]) -> Result<Vec<u8>, KeyError> {
    let key = Key::random().ok_or(KeyError::Random)?;
    let master = keyring.first();
    let context = context(project, id);
    let wrapped = crypto::seal(&master.key, &context, key.bytes()).ok_or(KeyError::Random)?;
    let header = Header {
        terrane: "bundle".to_owned(),
        format: FORMAT,
        project: project.to_owned(),
        id: id.to_owned(),
        master: master.id.clone(),
        key: BASE64.encode(wrapped),
    };
    seal_file(&key, &header, plain).ok_or(KeyError::Random)
}

fn open(
    keyring: &Keyring,
    project: &str,
    file: Vec<u8>,
) -> Result<(String, Vec<u8>), OpenBundleError> {
    if !is_bundle(&file) {
        return Err(OpenBundleError::Shape);
    }
    let line = header_line(&file).map_err(|_| OpenBundleError::Shape)?;
    let header: Header = serde_json::from_slice(line).map_err(|_| OpenBundleError::Shape)?;
    if header.format != FORMAT {
        let found = header.format;
        return Err(OpenBundleError::Format { found });
    }
    if header.project != project {
        return Err(OpenBundleError::Foreign {
            found: header.project,
            expected: project.to_owned(),
        });
    }
    let Some(master) = keyring.find(&header.master) else {
        let given: Vec<&str> = keyring.ids().collect();
        return Err(OpenBundleError::OtherMaster {
            needed: header.master,
            given: given.join("`, `"),
        });
    };
    let wrapped = BASE64.decode(&header.key);
    let wrapped = wrapped.map_err(|_| OpenBundleError::Changed)?;
    let changed = |_: UnsealError| OpenBundleError::Changed;
    let context = context(&header.project, &header.id);
    let key = crypto::open(&master.key, &context, wrapped).map_err(changed)?;
    let key = Key::from_bytes(key).ok_or(OpenBundleError::Changed)?;
    let (header, plain) = open_file::<Header>(&key, file).map_err(changed)?;
    Ok((header.id, plain))
}

/// Binds a bundle's key to the bundle, so that it cannot be used for another one.
fn context(project: &str, id: &str) -> Vec<u8> {
    let owner = serde_json::json!({ "project": project, "id": id });
    serde_json::json!({ "terrane": "bundle key", "owner": owner, "format": FORMAT })
        .to_string()
        .into_bytes()
}
