//! Who wrote a version: the run, and through its change set the commit and the person, as far as they were
//! recorded.

use std::collections::HashMap;

use model::base::actor::Actor;
use model::base::ids::{ChangeSetId, RunId};
use model::state::StateVersion;
use store::ChangeSetError;

use crate::Control;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Author {
    pub run: Option<RunId>,
    pub change_set: Option<ChangeSetId>,
    pub commit: Option<CommitRef>,
    /// The person who requested the run.
    pub person: Option<Actor>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitRef {
    pub id: String,
    pub subject: Option<String>,
    /// Whether there were uncommitted changes.
    pub is_dirty: bool,
}

/// Looks up the author of each run once.
#[derive(Debug)]
pub struct AuthorCache<'a> {
    control: &'a Control,
    known: HashMap<RunId, Author>,
}

impl<'a> AuthorCache<'a> {
    pub fn new(control: &'a Control) -> Self {
        Self {
            control,
            known: HashMap::new(),
        }
    }

    pub async fn of(&mut self, version: &StateVersion) -> Result<Author, ChangeSetError> {
        let mut author = match version.run {
            None => Author::default(),
            Some(run) => self.of_run(run).await?,
        };
        // For a push by a person or with a token, only the version records the actor.
        let actor = Some(version.actor.clone()).filter(|actor| !actor.name.is_empty());
        author.person = author.person.or(actor);
        Ok(author)
    }

    async fn of_run(&mut self, run: RunId) -> Result<Author, ChangeSetError> {
        if let Some(author) = self.known.get(&run) {
            return Ok(author.clone());
        }
        let author = self.ask(run).await?;
        self.known.insert(run, author.clone());
        Ok(author)
    }

    async fn ask(&self, run: RunId) -> Result<Author, ChangeSetError> {
        let store = &self.control.store;
        let mut author = Author {
            run: Some(run),
            ..Author::default()
        };
        // A state may outlive the records of its runs.
        let Some(found) = store.run_get(run).await? else {
            return Ok(author);
        };
        let set = store.change_set_get(found.change_set).await?;
        author.change_set = Some(set.id);
        author.person = set.request.asker;
        let (subject, is_dirty) = (set.request.subject, set.request.dirty);
        author.commit = set.request.commit.map(|id| CommitRef {
            id,
            subject: subject.filter(|subject| !subject.is_empty()),
            is_dirty,
        });
        Ok(author)
    }
}
