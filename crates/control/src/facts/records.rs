//! Emergency acts are told to the branches that only terrane writes as soon as they are done, and again when they are
//! closed: whoever looks into Git next finds them, whether or not anything is published meanwhile.
//!
//! Not here: what the file says (`model::facts`), publications, which bring it along (`branch`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use drivers::process::engine_environment;
use model::facts::{BREAK_GLASS, records};
use model::ids::StackName;
use model::project::{FactsPlace, Owns};
use store::StoreError;

use super::branch::Job;
use super::{Place, Publication, chain, own_remote, place_key};
use crate::Control;
use crate::asker::Asker;
use crate::bootstrap::Ground;
use crate::stages::{Side, StackValues};

/// A place that does not know of an act yet. The next publication there brings it along.
#[derive(Clone, Debug)]
pub struct Untold {
    pub place: String,
    pub why: String,
}

/// Where the acts of a project lie on a branch.
pub(super) fn path(project: &str) -> String {
    format!("{BREAK_GLASS}/{project}.json")
}

/// Tells every branch of the project that this home has published to, and that only terrane writes, what was done past
/// the usual rules. One that knows it already is not asked.
pub async fn tell(
    control: &Control,
    root: &Path,
    asker: &BTreeMap<String, String>,
    places: &BTreeMap<String, FactsPlace>,
) -> Result<Vec<Untold>, StoreError> {
    let acts = control.store.break_glass_list_of(control.home.project());
    let acts = acts.await?;
    let mut untold = Vec::new();
    if acts.is_empty() {
        return Ok(untold);
    }
    let digester = control.store.keyed_digester("facts").await?;
    let said = digester.digest(&records(None, &acts));
    let owned = places.values().filter(|place| place.owns == Owns::Branch);
    let mut told = BTreeSet::new();
    for place in owned {
        let telling = Telling {
            control,
            root,
            asker,
        };
        if let Err(why) = telling.tell(place, &said, &mut told).await {
            untold.push(Untold {
                place: place.name.clone(),
                why,
            });
        }
    }
    Ok(untold)
}

/// What the home calls a place; its credential is not asked for. Why it cannot be told is a sentence.
pub(super) async fn key_of(declared: &FactsPlace, side: &Side<'_>) -> Result<String, String> {
    let mut values = StackValues::of_nothing(side);
    let where_to = [&declared.repository, &declared.branch];
    let secrets = values.add_secrets(where_to.into_iter().flatten(), side);
    secrets.await.map_err(|err| chain(&err))?;
    let own = remote_for(declared, side)?;
    let without = FactsPlace {
        credential: None,
        ..declared.clone()
    };
    let place = Place::read(&without, &values, own.as_deref()).map_err(|err| chain(&err))?;
    place_key(side.root, &place).map_err(|err| chain(&err))
}

/// The project's own repository, where a place names none.
fn remote_for(declared: &FactsPlace, side: &Side<'_>) -> Result<Option<String>, String> {
    match declared.repository {
        Some(_) => Ok(None),
        None => own_remote(side.asker.env(), side.root).map_err(|err| chain(&err)),
    }
}

struct Telling<'a> {
    control: &'a Control,
    root: &'a Path,
    asker: &'a BTreeMap<String, String>,
}

impl Telling<'_> {
    /// `said` is the digest of what this home has to tell, `told` are the places that were seen to.
    async fn tell(
        &self,
        declared: &FactsPlace,
        said: &str,
        told: &mut BTreeSet<String>,
    ) -> Result<(), String> {
        let env = engine_environment(self.asker, true);
        let side = Side {
            asker: &Asker::of_environment(self.asker),
            root: self.root,
            env: &env,
        };
        let key = key_of(declared, &side).await?;
        if !told.insert(key.clone()) || self.is_told(&key, said).await.map_err(|err| chain(&err))? {
            return Ok(());
        }
        let mut values = StackValues::of_nothing(&side);
        let all = [&declared.repository, &declared.branch, &declared.credential];
        let secrets = values.add_secrets(all.into_iter().flatten(), &side);
        secrets.await.map_err(|err| chain(&err))?;
        let own = remote_for(declared, &side)?;
        let place = Place::read(declared, &values, own.as_deref()).map_err(|err| chain(&err))?;
        // A record is of no stack; this name is written nowhere.
        let nobody: StackName = "nobody".parse().map_err(|err| chain(&err))?;
        let publication = Publication {
            root: self.root,
            tree: self.root,
            asker: self.asker,
            places: &BTreeMap::new(),
            stack: &nobody,
            state_name: "",
            run: None,
            state: None,
            source: None,
            at: self.control.now(),
            outputs: &BTreeMap::new(),
            blocks: &[],
            sinks: &[],
            former: &[],
            version: None,
            ground: Ground {
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
        let job = Job {
            control: self.control,
            publication: &publication,
            place: &place,
            names: Vec::new(),
            key,
            files: Vec::new(),
            remembered: BTreeSet::new(),
            is_record: true,
        };
        job.publish().await.map(drop).map_err(|err| chain(&err))
    }

    /// Whether there is nothing new for a place, or nobody has published there yet.
    async fn is_told(&self, key: &str, said: &str) -> Result<bool, StoreError> {
        let (store, project) = (&self.control.store, self.control.home.project());
        if store.fact_commit_last(project, key).await?.is_none() {
            return Ok(true);
        }
        let path = path(project);
        let past = store.fact_file_history(project, key, &path).await?;
        let last = past.first().filter(|past| past.is_pushed);
        Ok(last.is_some_and(|past| past.digest.plain.as_deref() == Some(said)))
    }
}
