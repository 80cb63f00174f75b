//! Identifies the caller and checks what it may change. If the writers of a target are not `anyone`, only
//! certain CI jobs may change it. The verified token of such a job must match one of the target's `writer`
//! blocks.
//!
//! On an embedded home this is only a guard rail: a user who can write to the home can do anything.
//!
//! Not here: tokens and keys (`drivers::oidc`), which claims match (`model::project::identity`).

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::OnceLock;

use drivers::oidc::{FetchError, Oidc, VerifyTokenError};
use model::base::actor::Actor;
use model::base::error::causes;
use model::base::ids::StackName;
use model::base::secret::Secret;
use model::project::identity::{Identity, Mismatch, mismatches};
use model::project::{Project, Target, Writer};

mod refusal;

pub use refusal::NotAWriterError;

/// The caller, and why it does not match certain `writer` blocks.
#[derive(Clone, Debug)]
pub struct Caller {
    pub identity: Identity,
    actor: Actor,
    refusals: Vec<(Writer, WriterMismatch)>,
    job: JobKind,
}

/// The kind of CI job according to the environment. It only affects the text of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobKind {
    None,
    GitHub,
    GitLab,
    Other,
}

/// Why the caller is not the writer that a block describes.
#[derive(Clone, Debug)]
enum WriterMismatch {
    /// The caller has no token.
    NoToken,
    /// The token could not be fetched or verified.
    Unverified {
        why: Vec<String>,
        is_unavailable: bool,
    },
    /// The token is valid, but its claims do not match.
    Other {
        identity: Identity,
        wrong: Vec<Mismatch>,
    },
}

impl Caller {
    /// An actor without a token of an issuer.
    pub fn new(actor: Actor) -> Self {
        Self {
            identity: Identity::person(&actor.name),
            actor,
            refusals: Vec::new(),
            job: JobKind::None,
        }
    }

    /// The actor: the job of a verified token, or else the one that started this program.
    pub fn actor(&self) -> Actor {
        if self.identity.verified {
            return self.identity.actor();
        }
        self.actor.clone()
    }

    /// Whether the caller may change the stacks of a target.
    pub fn check(&self, target: &Target) -> Result<(), NotAWriterError> {
        let is_one = |name: &String| self.identity.writers.contains(name);
        if target.is_open() || target.writers.iter().any(is_one) {
            return Ok(());
        }
        Err(self.refused(target))
    }

    /// Whether the caller may change all these stacks.
    pub fn check_all(
        &self,
        project: &Project,
        stacks: &BTreeSet<StackName>,
    ) -> Result<(), NotAWriterError> {
        targets(project, stacks).try_for_each(|target| self.check(target))
    }
}

/// Identifies the caller as far as these stacks require it; targets that anyone may change require nothing. A
/// token that cannot be verified is not an error here: `Who::check` reports it if it matters.
pub async fn identify(
    project: &Project,
    stacks: &BTreeSet<StackName>,
    env: &BTreeMap<String, String>,
    actor: &Actor,
) -> Caller {
    let mut who = Caller::new(actor.clone());
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
        // Boxed, because this future is large and rarely needed: inline, it would enlarge the future of every
        // command.
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

/// One instance per process, because it caches the keys of issuers.
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

/// The tokens of this job: from a variable, or fetched once per audience.
struct Tokens<'a> {
    env: &'a BTreeMap<String, String>,
    oidc: Result<Oidc, FetchError>,
    fetched: BTreeMap<String, Secret>,
}

impl Tokens<'_> {
    async fn bearer_of(&mut self, writer: &Writer) -> Result<Identity, WriterMismatch> {
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
            Err(WriterMismatch::Other { identity, wrong })
        }
    }

    async fn token(&mut self, writer: &Writer) -> Result<Secret, WriterMismatch> {
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
            return Err(WriterMismatch::NoToken);
        };
        let (oidc, bearer) = (self.oidc()?, Secret::new(bearer));
        let token = oidc
            .token_of_github_job(address, &bearer, &writer.audience)
            .await
            .map_err(|err| unverified("its token could not be fetched", &err, true))?;
        self.fetched.insert(writer.audience.clone(), token.clone());
        Ok(token)
    }

    fn oidc(&self) -> Result<&Oidc, WriterMismatch> {
        let oidc = self.oidc.as_ref();
        oidc.map_err(|err| unverified("its token could not be verified", err, true))
    }
}

/// The error with its causes, outermost first.
fn unverified(what: &str, err: &dyn Error, is_unavailable: bool) -> WriterMismatch {
    let mut why = vec![format!("{what}: {err}")];
    why.extend(causes(err).map(ToString::to_string));
    WriterMismatch::Unverified {
        why,
        is_unavailable,
    }
}
