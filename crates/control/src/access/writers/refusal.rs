//! Explains why the caller may not change a target: what each writer requires, what was found instead, and
//! how to proceed.

use std::fmt;

use model::base::error::{ErrorKind, Explain, NextStep, advice};
use model::project::{Target, Writer};

use super::{Caller, JobKind, WriterMismatch};

#[derive(Debug, thiserror::Error)]
#[error("target `{target}` {rule}")]
pub struct NotAWriterError {
    target: String,
    rule: &'static str,
    #[source]
    why: Reasons,
    next_step: NextStep,
}

impl Explain for NotAWriterError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Refused
    }

    fn next_steps(&self) -> Vec<NextStep> {
        vec![self.next_step.clone()]
    }
}

/// One line for each unmet requirement.
#[derive(Debug)]
struct Reasons(Vec<String>);

impl std::error::Error for Reasons {}

impl fmt::Display for Reasons {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl Caller {
    pub(super) fn refused(&self, target: &Target) -> NotAWriterError {
        let has_server = target.writers.iter().any(|name| name == "server");
        let has_ci = target.writers.iter().any(|name| name != "server");
        let rule = match (has_ci, has_server) {
            (true, false) => "is applied by CI only",
            (true, true) => "is applied by CI or a server's own runners only",
            (false, true) => "is applied by a server's own runners only",
            (false, false) => "cannot be applied",
        };
        NotAWriterError {
            target: target.name.clone(),
            rule,
            why: Reasons(self.why(target, has_server)),
            next_step: advice(self.advice(target)),
        }
    }

    fn why(&self, target: &Target, has_server: bool) -> Vec<String> {
        let mut lines = Vec::new();
        for (writer, refusal) in self.refusals_of(target) {
            let name = &writer.name;
            match refusal {
                WriterMismatch::NoToken => {
                    let line = self.no_token(writer);
                    if !lines.contains(&line) {
                        lines.push(line);
                    }
                }
                WriterMismatch::Unverified { why, .. } => {
                    lines.push(format!("this job is not known to be writer `{name}`:"));
                    lines.extend(why.iter().map(|line| format!("  {line}")));
                }
                WriterMismatch::Other { identity, wrong } => {
                    lines.push(format!("this is {identity}, not writer `{name}`:"));
                    lines.extend(wrong.iter().map(|wrong| format!("  {wrong}")));
                }
            }
        }
        if target.writers.is_empty() {
            lines.push("its `writers` are empty".to_owned());
        }
        if has_server {
            lines.push("this is not a server's runner: those are not built yet".to_owned());
        }
        lines
    }

    fn no_token(&self, writer: &Writer) -> String {
        match self.job {
            JobKind::None => "no verified CI identity was found: this is not a CI job".to_owned(),
            JobKind::GitHub => "this job may not ask GitHub for an identity token".to_owned(),
            JobKind::GitLab | JobKind::Other => format!(
                "this job has no identity token: `{}` is not set",
                writer.token_env
            ),
        }
    }

    fn advice(&self, target: &Target) -> String {
        let is_unavailable = |refusal: &WriterMismatch| match refusal {
            WriterMismatch::Unverified { is_unavailable, .. } => *is_unavailable,
            WriterMismatch::NoToken | WriterMismatch::Other { .. } => false,
        };
        let mut all = self.refusals_of(target);
        if all.any(|(_, refusal)| is_unavailable(refusal)) {
            return "nothing was changed: run the job again when the issuer responds".to_owned();
        }
        let mut all = self.refusals_of(target);
        let unarmed = all.find(|(_, refusal)| matches!(refusal, WriterMismatch::NoToken));
        let unarmed = unarmed.map(|(writer, _)| writer);
        match (self.job, unarmed) {
            (JobKind::GitHub, Some(_)) => {
                "add `id-token: write` to the `permissions` of the job".to_owned()
            }
            (
                JobKind::GitLab,
                Some(Writer {
                    token_env,
                    audience,
                    ..
                }),
            ) => {
                format!("add to the job: `id_tokens: {{ {token_env}: {{ aud: {audience} }} }}`")
            }
            (JobKind::Other, Some(Writer { token_env, .. })) => {
                format!("set `{token_env}` to the OIDC token of the job")
            }
            (JobKind::None, _) | (_, None) => {
                let mut writers = self.refusals_of(target).map(|(writer, _)| writer);
                if self.refusals_of(target).next().is_none() {
                    return "name a `writer` block among its `writers`, and apply in CI".to_owned();
                }
                let when = match writers.find_map(branch) {
                    Some(branch) => format!("when the commit reaches `{branch}`"),
                    None => "in the job that its writers describe".to_owned(),
                };
                format!("`terrane plan` works here; the apply runs {when}")
            }
        }
    }

    fn refusals_of<'a>(
        &'a self,
        target: &'a Target,
    ) -> impl Iterator<Item = (&'a Writer, &'a WriterMismatch)> {
        let all = self.refusals.iter();
        all.filter(|(writer, _)| target.writers.contains(&writer.name))
            .map(|(writer, refusal)| (writer, refusal))
    }
}

/// The only branch whose jobs may apply, if the rules name exactly one.
fn branch(writer: &Writer) -> Option<&str> {
    let [only] = writer.claims.get("ref")?.as_slice() else {
        return None;
    };
    let name = only.strip_prefix("refs/heads/").unwrap_or(only);
    Some(name).filter(|name| !name.contains('*') && !name.starts_with("refs/"))
}
