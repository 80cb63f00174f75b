//! Break-glass records on the branches that only terrane writes: committed when an act happens and again when it is
//! closed, so that an investigation can start from Git.
//!
//! Not here: what the file contains (`model::stage::facts`), publications, which commit it as well (`branch`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use drivers::process::engine_environment;
use model::base::error::one_line;
use model::base::ids::StackName;
use model::stage::facts::{BREAK_GLASS, records};
use model::stage::facts::{BranchOwnership, FactsBranch};
use store::StoreError;

use super::branch::BranchJob;
use super::{Destination, Publication, own_remote, place_key};
use crate::Control;
use crate::secrets::caller_env::CallerEnv;
use crate::stage::cluster::ClusterContext;
use crate::stage::values::{CallerContext, StackValues};

/// A branch that does not have the records yet. The next publication there commits them.
#[derive(Clone, Debug)]
pub struct MissedRecord {
    pub place: String,
    pub why: String,
}

/// The file with the records of a project.
pub(super) fn path(project: &str) -> String {
    format!("{BREAK_GLASS}/{project}.json")
}

/// Commits the break-glass records of the project to every branch that only terrane writes and that this home has
/// published to. A branch that has them already is not contacted.
pub async fn publish_records(
    control: &Control,
    root: &Path,
    asker: &BTreeMap<String, String>,
    places: &BTreeMap<String, FactsBranch>,
) -> Result<Vec<MissedRecord>, StoreError> {
    let acts = control.store.break_glass_list_of(control.home.project());
    let acts = acts.await?;
    let mut missed = Vec::new();
    if acts.is_empty() {
        return Ok(missed);
    }
    let digester = control.store.keyed_digester("facts").await?;
    let digest = digester.digest(&records(None, &acts));
    let owned = places
        .values()
        .filter(|place| place.owns == BranchOwnership::Branch);
    let mut done = BTreeSet::new();
    for place in owned {
        let publishing = Publishing {
            control,
            root,
            asker,
        };
        if let Err(why) = publishing.publish(place, &digest, &mut done).await {
            missed.push(MissedRecord {
                place: place.name.clone(),
                why,
            });
        }
    }
    Ok(missed)
}

/// The identity of a branch in the store. Its credential is not read. The error is a sentence.
pub(super) async fn key_of(
    declared: &FactsBranch,
    side: &CallerContext<'_>,
) -> Result<String, String> {
    let mut values = StackValues::of_nothing(side);
    let where_to = [&declared.repository, &declared.branch];
    let secrets = values.add_secrets(where_to.into_iter().flatten(), side);
    secrets.await.map_err(|err| one_line(&err))?;
    let own = own_remote(side.asker.env(), side.root, [declared]);
    let own = own.map_err(|err| one_line(&err))?;
    let without = FactsBranch {
        credential: None,
        ..declared.clone()
    };
    let place =
        Destination::read(&without, &values, own.as_deref()).map_err(|err| one_line(&err))?;
    place_key(side.root, &place).map_err(|err| one_line(&err))
}

struct Publishing<'a> {
    control: &'a Control,
    root: &'a Path,
    asker: &'a BTreeMap<String, String>,
}

impl Publishing<'_> {
    /// `digest` is that of the records of this home; `done` are the branches that are already handled.
    async fn publish(
        &self,
        declared: &FactsBranch,
        digest: &str,
        done: &mut BTreeSet<String>,
    ) -> Result<(), String> {
        let env = engine_environment(self.asker, true);
        let side = CallerContext {
            asker: &CallerEnv::of_environment(self.asker),
            root: self.root,
            env: &env,
        };
        let key = key_of(declared, &side).await?;
        let is_new = done.insert(key.clone());
        if !is_new
            || self
                .is_up_to_date(&key, digest)
                .await
                .map_err(|err| one_line(&err))?
        {
            return Ok(());
        }
        let mut values = StackValues::of_nothing(&side);
        let secrets = values.add_secrets(declared.inputs(), &side);
        secrets.await.map_err(|err| one_line(&err))?;
        let own = own_remote(self.asker, self.root, [declared]);
        let own = own.map_err(|err| one_line(&err))?;
        let place =
            Destination::read(declared, &values, own.as_deref()).map_err(|err| one_line(&err))?;
        // A record belongs to no stack; this name is written nowhere.
        let no_stack: StackName = "none".parse().map_err(|err| one_line(&err))?;
        let publication = Publication {
            root: self.root,
            tree: self.root,
            asker: self.asker,
            places: &BTreeMap::new(),
            stack: &no_stack,
            state_name: "",
            run: None,
            state: None,
            source: None,
            at: self.control.now(),
            outputs: &BTreeMap::new(),
            blocks: &[],
            sinks: &[],
            locations: &[],
            cluster: ClusterContext {
                source: self.root,
                env: &env,
                hidden: &[],
                cache: &self.control.cache,
                held: None,
            },
            is_destroyed: false,
            stacks: &BTreeMap::new(),
            take_over: None,
        };
        let job = BranchJob {
            control: self.control,
            publication: &publication,
            place: &place,
            names: Vec::new(),
            key,
            files: Vec::new(),
            remembered: BTreeSet::new(),
            is_record: true,
        };
        job.publish().await.map(drop).map_err(|err| one_line(&err))
    }

    /// Whether a branch has the records already, or this home never published there.
    async fn is_up_to_date(&self, key: &str, digest: &str) -> Result<bool, StoreError> {
        let (store, project) = (&self.control.store, self.control.home.project());
        if store.fact_commit_last(project, key).await?.is_none() {
            return Ok(true);
        }
        let path = path(project);
        let past = store.fact_file_history(project, key, &path).await?;
        let last = past.first().filter(|past| past.is_pushed);
        Ok(last.is_some_and(|past| past.digest.plain.as_deref() == Some(digest)))
    }
}
