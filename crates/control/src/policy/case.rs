//! The input of a run's policies, stored with the run, compressed and sealed.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;

use model::base::ids::{RunId, StackName};
use model::policy::{PolicyPhase, PolicySource};
use model::run::RunSpec;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::KeyScope;
use zstd::bulk::Compressor;

use super::PolicyError;
use crate::Control;
use crate::home::write_private;

/// The input of a run's policies, and the policies as they were then. Stored with the run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Case {
    /// The plan as JSON, without sensitive values.
    pub plan: Value,
    pub policies: Vec<CasePolicy>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CasePolicy {
    pub name: String,
    pub at: BTreeSet<PolicyPhase>,
    pub enforce: bool,
    pub sources: Vec<PolicySource>,
}

/// Stores a case with its run, compressed and sealed.
pub(crate) async fn keep(
    control: &Control,
    run: RunId,
    spec: &RunSpec,
    case: &Case,
) -> Result<(), PolicyError> {
    let bytes = serde_json::to_vec(case).map_err(|err| PolicyError::Keep(err.into()))?;
    let small = compress(&bytes).map_err(|err| PolicyError::Keep(err.into()))?;
    let scope = KeyScope::State(control.state_name(&spec.stack.state));
    let sealed = control.store.seal(scope, &purpose(run), small).await;
    let sealed = sealed.map_err(|err| PolicyError::Keep(err.into()))?;
    write_private(&case_path(control, run), &sealed).map_err(|err| PolicyError::Keep(err.into()))
}

/// Compresses in one call with known size: a stream would set up a megabyte of tables for a few thousand
/// bytes. The tables are reused for all runs of a runner.
fn compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    thread_local! {
        static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
    }
    COMPRESSOR.with_borrow_mut(|kept| match kept {
        Some(compressor) => compressor.compress(bytes),
        none => none.insert(Compressor::new(1)?).compress(bytes),
    })
}

/// Reads the stored case of a run.
pub async fn recall(control: &Control, run: RunId, spec: &RunSpec) -> Result<Case, PolicyError> {
    let failed = |source| PolicyError::Recall { run, source };
    let sealed = match fs::read(case_path(control, run)) {
        Ok(sealed) => sealed,
        Err(err) if err.kind() == io::ErrorKind::NotFound => {
            return Err(PolicyError::Missing { run });
        }
        Err(err) => return Err(failed(err.into())),
    };
    let scope = KeyScope::State(control.state_name(&spec.stack.state));
    let small = control.store.unseal(scope, &purpose(run), sealed).await;
    let small = small.map_err(|err| failed(err.into()))?;
    let bytes = zstd::decode_all(small.as_slice()).map_err(|err| failed(err.into()))?;
    serde_json::from_slice(&bytes).map_err(|err| failed(err.into()))
}

/// The newest run of a stack that has a stored case.
pub async fn last_planned(
    control: &Control,
    stack: &StackName,
) -> Result<Option<RunId>, PolicyError> {
    for run in control.store.run_list_of_stack(stack).await? {
        let set = control.store.run_summary(run).await?.set;
        if set.request.project == control.home.project() && case_path(control, run).is_file() {
            return Ok(Some(run));
        }
    }
    Ok(None)
}

fn case_path(control: &Control, run: RunId) -> PathBuf {
    control.home.run_dir(run).join("policy.case")
}

/// The path of the case, and the purpose it is sealed for.
pub(crate) fn place(control: &Control, run: RunId) -> (PathBuf, String) {
    (case_path(control, run), purpose(run))
}

fn purpose(run: RunId) -> String {
    format!("policy-case {run}")
}
