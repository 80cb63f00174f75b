//! The policies that a project has now and a plan was not made with. Whoever applies plans of another commit asks them,
//! too: a plan does not leave a policy behind by being made where there is none.

use model::ids::RunId;
use model::policy::{AppliedPolicy, Point};
use model::project::Project;
use model::run::RunSpec;

use super::case::{keep, recall};
use super::{CasePolicy, PolicyError, applied};
use crate::Control;

/// Those of its stack that a run lacks, with their text: they may not be in its source. Since they were not asked when the
/// plan was made, they are asked before it is applied, whenever else.
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
        now.at.insert(Point::Apply);
        lacking.push(now);
    }
    lacking
}

/// Adds them to what is kept of a run's plan.
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
        Err(PolicyError::Missing { .. }) => return Ok(()), // it has no plan, or makes it here
        case => case?,
    };
    case.policies.extend(lacking.iter().map(CasePolicy::of));
    keep(control, run, spec, &case).await
}

impl CasePolicy {
    /// Of a policy that brings its text.
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
