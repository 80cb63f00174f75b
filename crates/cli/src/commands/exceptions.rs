//! Emergencies after an apply, as `apply` and `run retry` take them: a gate that need not pass, a bootstrap that takes
//! back what others hold.

use control::{Control, runs};
use model::break_glass::Act;
use model::exception::{Exceptions, GateOfStack};
use model::run::Run;

use crate::{CommandError, ExitStatus, report};

#[derive(Debug, clap::Args)]
pub(crate) struct ExceptionArgs {
    /// Do not look at this gate, as an emergency: it stays on the record, with the reason
    #[arg(long = "skip-gate", value_name = "STACK/GATE", requires = "reason")]
    #[arg(group = "emergency")]
    skip_gates: Vec<GateOfStack>,
    /// Take back what others hold by now of what `bootstrap` installed, as an emergency: it stays on the record
    #[arg(long, requires = "reason", group = "emergency")]
    reinstall: bool,
}

impl ExceptionArgs {
    /// None if nothing is out of the usual.
    pub(crate) fn read(self, reason: Option<&str>) -> Result<Option<Exceptions>, CommandError> {
        if self.skip_gates.is_empty() && !self.reinstall {
            return Ok(None);
        }
        let reason = reason.map(str::trim).unwrap_or_default();
        if reason.is_empty() {
            return Err(CommandError::new("the reason is empty")
                .hint("say why, for who reads the record later: `--reason \"…\"`")
                .status(ExitStatus::Usage));
        }
        Ok(Some(Exceptions {
            skip_gates: self.skip_gates,
            reinstall: self.reinstall,
            reason: reason.to_owned(),
        }))
    }
}

/// What was done past the usual rules, and until when it stays on the record.
pub(crate) async fn say_open(control: &Control, of: &[Run]) -> Result<(), CommandError> {
    let acts = runs::open_acts(control).await;
    let acts = acts.map_err(|err| CommandError::from_error(&err))?;
    let is_ours = |detail: &str| {
        of.iter()
            .any(|run| detail.ends_with(&format!("run {}", run.id)))
    };
    for act in acts.iter().filter(|act| is_ours(&act.detail)) {
        let what = if act.act == Act::GateSkipped {
            "a gate was not looked at"
        } else if act.act == Act::Reinstalled {
            "bootstrap took everything back"
        } else {
            continue;
        };
        report::say(&format!(
            "{}: {what} ({}); `terrane run list --open` shows it until an apply of its stack is done without.\n",
            act.state.name, act.detail
        ))?;
    }
    Ok(())
}
