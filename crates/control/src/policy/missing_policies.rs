//! Policies that the project has now but a plan was made without. A plan from another commit is checked
//! against them before it is applied, so that it cannot bypass a policy.

use model::base::ids::RunId;
use model::policy::{AppliedPolicy, PolicyPhase};
use model::project::Project;
use model::run::RunSpec;

use super::case::{keep, recall};
use super::{CasePolicy, PolicyError, applied};
use crate::Control;

/// The policies of the stack that a run lacks, with their text, which may not be in the run's source. They
/// were not evaluated at plan time, so they are always evaluated before apply.
pub(crate) fn lacking(project: &Project, spec: &RunSpec) -> Vec<AppliedPolicy> {
    let mut lacking = Vec::new();
    for mut now in applied(project, &spec.stack.name) {
        let asks = |it: &AppliedPolicy| {
            let digests: Vec<String> = it.files.iter().map(|file| file.digest.clone()).collect();
            (digests, it.at.clone(), it.enforce)
        };
        if spec.policies.iter().any(|then| asks(then) == asks(&now)) {
            continue;
        }
        let sources = project.policies.get(&now.name).map(|it| &it.sources);
        for file in &mut now.files {
            let mut sources = sources.into_iter().flatten();
            let source = sources.find(|source| source.path == file.path);
            file.text = source.map(|source| source.text.clone());
        }
        if spec.policies.iter().any(|then| then.name == now.name) {
            now.name = format!("{} (as of now)", now.name);
        }
        now.at.insert(PolicyPhase::Apply);
        lacking.push(now);
    }
    lacking
}

/// Adds these policies to the stored case of a run.
pub(crate) async fn add(
    control: &Control,
    run: RunId,
    spec: &RunSpec,
    lacking: &[AppliedPolicy],
) -> Result<(), PolicyError> {
    if lacking.is_empty() {
        return Ok(());
    }
    let mut case = match recall(control, run, spec).await {
        Err(PolicyError::Missing { .. }) => return Ok(()), // the run has no plan, or makes it here
        case => case?,
    };
    case.policies.extend(lacking.iter().map(CasePolicy::of));
    keep(control, run, spec, &case).await
}

impl CasePolicy {
    /// From a policy that includes its text.
    fn of(applied: &AppliedPolicy) -> Self {
        let sources = applied
            .files
            .iter()
            .map(|file| model::policy::PolicySource {
                path: file.path.clone(),
                text: file.text.clone().unwrap_or_default(),
            });
        Self {
            name: applied.name.clone(),
            at: applied.at.clone(),
            enforce: applied.enforce,
            sources: sources.collect(),
        }
    }
}
