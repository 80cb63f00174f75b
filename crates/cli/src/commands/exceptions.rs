//! Break-glass options after an apply or a destroy, for `apply`, `destroy` and `run retry`: skipped gates,
//! and a bootstrap that takes back objects that others manage.

use std::collections::BTreeSet;

use control::Control;
use control::changeset::restrictions::Restrictions;
use model::run::Run;
use model::run::exception::{Exceptions, GateOfStack};
use model::state::break_glass::{BreakGlass, BreakGlassAction};

use super::manual::reason_text;
use crate::global::Global;
use crate::view::{ViewOptions, errors};
use crate::{CommandError, Process, report};

/// Gates that need not pass.
#[derive(Debug, clap::Args)]
pub(crate) struct SkipGateArgs {
    /// Skip this gate; break-glass, recorded with the reason
    #[arg(long = "skip-gate", value_name = "STACK/GATE", requires = "reason")]
    #[arg(group = "emergency")]
    skip_gates: Vec<GateOfStack>,
}

impl SkipGateArgs {
    /// None if there are no exceptions.
    pub(crate) fn read(
        self,
        reason: Option<&str>,
        global: &Global,
        process: &Process,
    ) -> Result<Option<Exceptions>, CommandError> {
        read(self.skip_gates, false, reason, global, process)
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExceptionArgs {
    #[command(flatten)]
    gates: SkipGateArgs,
    /// Take back ownership of bootstrap objects that others manage now; break-glass, recorded with the reason
    #[arg(long, requires = "reason", group = "emergency")]
    reinstall: bool,
}

impl ExceptionArgs {
    /// None if there are no exceptions.
    pub(crate) fn read(
        self,
        reason: Option<&str>,
        global: &Global,
        process: &Process,
    ) -> Result<Option<Exceptions>, CommandError> {
        let gates = self.gates.skip_gates;
        read(gates, self.reinstall, reason, global, process)
    }
}

fn read(
    skip_gates: Vec<GateOfStack>,
    reinstall: bool,
    reason: Option<&str>,
    global: &Global,
    process: &Process,
) -> Result<Option<Exceptions>, CommandError> {
    if skip_gates.is_empty() && !reinstall {
        return Ok(None);
    }
    Ok(Some(Exceptions {
        skip_gates,
        reinstall,
        reason: reason_text(reason.unwrap_or_default(), global, process)?,
    }))
}

/// Prints the exceptions of these runs, and how long each stays open.
pub(crate) async fn say_open(
    control: &Control,
    of: &[Run],
    look: ViewOptions,
) -> Result<(), CommandError> {
    let in_force = Restrictions::read(control).await;
    let acts = in_force.map_err(|err| CommandError::from_error(&err))?.acts;
    let is_ours = |detail: &str| {
        of.iter().any(|run| {
            detail.ends_with(&format!("run {}", run.id))
                || detail.starts_with(&format!("run {}:", run.id))
        })
    };
    let is_past_policy =
        |act: &BreakGlass| act.act == BreakGlassAction::PolicyOverridden && is_ours(&act.detail);
    if acts.iter().any(is_past_policy) {
        report::say(
            "Policies were overridden; what they denied stays in `terrane run list --open`.\n",
        )?;
    }
    let mut said = BTreeSet::new();
    for act in acts.iter().filter(|act| is_ours(&act.detail)) {
        let (what, without) = if act.act == BreakGlassAction::GateSkipped {
            ("a gate was skipped", "--skip-gate")
        } else if act.act == BreakGlassAction::Reinstalled {
            ("bootstrap took everything back", "--reinstall")
        } else {
            continue;
        };
        // A retry records the same exception again.
        if !said.insert((&act.state.name, &act.detail)) {
            continue;
        }
        let words = format!("{}: {what} ({})", act.state.name, act.detail);
        let until = format!(
            "`terrane run list --open` shows it until a run of the stack succeeds without `{without}`"
        );
        report::say(&errors::render_warning(&words, &[until], look))?;
    }
    Ok(())
}
