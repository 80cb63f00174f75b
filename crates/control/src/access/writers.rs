//! Who asks, and what they may change: a target whose writers are not `anyone` is changed only by a CI job
//! whose verified token one of its `writer` blocks describes.
//!
//! On an embedded home this is a guard rail: whoever can write the home can do anything.
//!
//! Not here: tokens and keys (`drivers::oidc`), which claims fit (`model::identity`).

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::OnceLock;

use drivers::oidc::{FetchError, Oidc, VerifyTokenError};
use model::error::causes;
use model::identity::{Identity, Mismatch, mismatches};
use model::ids::StackName;
use model::project::{Project, Target, Writer};
use model::secret::Secret;

mod refusal;

pub use refusal::NotAWriterError;

/// Who asks, and which `writer` blocks they are not, and why.
#[derive(Clone, Debug)]
pub struct Who {
    pub identity: Identity,
    refusals: Vec<(Writer, Refusal)>,
    job: JobKind,
}

/// Where this runs, as far as the environment says; it decides nothing but the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobKind {
    None,
    GitHub,
    GitLab,
    Other,
}

/// Why somebody is not the writer that a block describes.
#[derive(Clone, Debug)]
enum Refusal {
    /// There is no token at all.
    NoToken,
    /// The token could not be fetched, or is not believed.
    Unverified {
        why: Vec<String>,
        is_unavailable: bool,
    },
    /// It is believed, and says something else.
    Other {
        identity: Identity,
        wrong: Vec<Mismatch>,
    },
}

impl Who {
    /// Somebody about whom nothing was asked.
    pub fn person(name: impl Into<String>) -> Self {
        Self {
            identity: Identity::person(name),
            refusals: Vec::new(),
            job: JobKind::None,
        }
    }

    /// Whether they may change the stacks of a target.
    pub fn check(&self, target: &Target) -> Result<(), NotAWriterError> {
        let is_one = |name: &String| self.identity.writers.contains(name);
        if target.is_open() || target.writers.iter().any(is_one) {
            return Ok(());
        }
        Err(self.refused(target))
    }

    /// Whether they may change all these stacks.
    pub fn check_all(
        &self,
        project: &Project,
        stacks: &BTreeSet<StackName>,
    ) -> Result<(), NotAWriterError> {
        targets(project, stacks).try_for_each(|target| self.check(target))
    }
}

/// Finds out who asks, as far as it matters for these stacks: where anyone may write, nobody is asked.
/// What cannot be verified is no failure here; `Who::check` tells when it matters.
pub async fn identify(
    project: &Project,
    stacks: &BTreeSet<StackName>,
    env: &BTreeMap<String, String>,
    person: &str,
) -> Who {
    let mut who = Who::person(person);
    who.job = job(env);
    let closed = targets(project, stacks).filter(|target| !target.is_open());
    let names = closed.flat_map(|target| &target.writers);
    let names: BTreeSet<&String> = names.collect();
    if names.is_empty() {
        return who;
    }
    let mut tokens = Tokens {
        env,
        oidc: shared_oidc(),
        fetched: BTreeMap::new(),
    };
    for writer in names
        .into_iter()
        .filter_map(|name| project.writers.get(name))
    {
        // Rarely needed, and large: it must not make every command's future so.
        match Box::pin(tokens.bearer_of(writer)).await {
            Ok(found) if who.identity.verified => who.identity.writers.extend(found.writers),
            Ok(found) => who.identity = found,
            Err(refusal) => {
                who.refusals.push((writer.clone(), refusal));
            }
        }
    }
    who
}

/// One for the whole process: it remembers the keys of issuers.
fn shared_oidc() -> Result<Oidc, FetchError> {
    static SHARED: OnceLock<Oidc> = OnceLock::new();
    if let Some(oidc) = SHARED.get() {
        return Ok(oidc.clone());
    }
    let oidc = Oidc::new()?;
    Ok(SHARED.get_or_init(|| oidc).clone())
}

fn targets<'a>(
    project: &'a Project,
    stacks: &'a BTreeSet<StackName>,
) -> impl Iterator<Item = &'a Target> {
    let stacks = stacks.iter().filter_map(|name| project.stacks.get(name));
    stacks.filter_map(|stack| project.targets.get(&stack.target))
}

fn job(env: &BTreeMap<String, String>) -> JobKind {
    let is_set = |name: &str| {
        env.get(name)
            .is_some_and(|value| !value.is_empty() && value != "false" && value != "0")
    };
    if is_set("GITHUB_ACTIONS") {
        JobKind::GitHub
    } else if is_set("GITLAB_CI") {
        JobKind::GitLab
    } else if is_set("CI") {
        JobKind::Other
    } else {
        JobKind::None
    }
}

/// The tokens of this job: given in a variable, or fetched once for each audience.
struct Tokens<'a> {
    env: &'a BTreeMap<String, String>,
    oidc: Result<Oidc, FetchError>,
    fetched: BTreeMap<String, Secret>,
}

impl Tokens<'_> {
    async fn bearer_of(&mut self, writer: &Writer) -> Result<Identity, Refusal> {
        let token = self.token(writer).await?;
        let claims = self
            .oidc()?
            .verify(&token, &writer.issuer, &writer.audience)
            .await
            .map_err(|err| {
                unverified(
                    "its token is not believed",
                    &err,
                    matches!(err, VerifyTokenError::Keys { .. }),
                )
            })?;
        let identity = Identity::job(writer, &claims);
        let wrong = mismatches(writer, &claims);
        if wrong.is_empty() {
            Ok(identity)
        } else {
            Err(Refusal::Other { identity, wrong })
        }
    }

    async fn token(&mut self, writer: &Writer) -> Result<Secret, Refusal> {
        let var = |name: &str| self.env.get(name).filter(|value| !value.is_empty());
        if let Some(given) = var(&writer.token_env) {
            return Ok(Secret::new(given.trim()));
        }
        if let Some(token) = self.fetched.get(&writer.audience) {
            return Ok(token.clone());
        }
        let address = var("ACTIONS_ID_TOKEN_REQUEST_URL");
        let bearer = var("ACTIONS_ID_TOKEN_REQUEST_TOKEN");
        let (Some(address), Some(bearer)) = (address, bearer) else {
            return Err(Refusal::NoToken);
        };
        let (oidc, bearer) = (self.oidc()?, Secret::new(bearer));
        let token = oidc
            .token_of_github_job(address, &bearer, &writer.audience)
            .await
            .map_err(|err| unverified("its token could not be fetched", &err, true))?;
        self.fetched.insert(writer.audience.clone(), token.clone());
        Ok(token)
    }

    fn oidc(&self) -> Result<&Oidc, Refusal> {
        let oidc = self.oidc.as_ref();
        oidc.map_err(|err| unverified("its token could not be verified", err, true))
    }
}

/// What went wrong, outermost first.
fn unverified(what: &str, err: &dyn Error, is_unavailable: bool) -> Refusal {
    let mut why = vec![format!("{what}: {err}")];
    why.extend(causes(err).map(ToString::to_string));
    Refusal::Unverified {
        why,
        is_unavailable,
    }
}
