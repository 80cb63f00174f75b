//! `terrane state verify`

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use control::state::queries::integrity::{self, DamageKind, IntegrityReport, StateDamage};
use control::state::queries::recover::OTHER_KEY;
use model::state::RefusedRequest;
use model::state::retention::{REFUSED_BYTES, REFUSED_COUNT};
use serde_json::json;

use super::recover::{begin_anew, ways_on, ways_to_settle};
use crate::commands::home_args::HomeHandle;
use crate::global::Global;
use crate::global::at_home;
use crate::view::text::{clean, count};
use crate::view::{ViewOptions, errors};
use crate::{CommandError, ExitStatus, Process, report};

/// Check every stored version: frames, chains, digests, keys; and the artifacts of stacks
///
/// Reads everything from where it is stored. Also lists refused writes that are quarantined.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane state verify\n  terrane state verify network --json\n\nExit codes: 0 all is well, 1 something is damaged."
)]
pub(crate) struct StateVerifyArgs {
    /// A stack of the project here, or `PROJECT/NAME`; all states if none is named
    state: Option<String>,
}

pub(crate) async fn verify(
    args: &StateVerifyArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let place = HomeHandle::open(global, process).await?;
    let state = match &args.state {
        Some(word) => Some(place.state(word).await?),
        None => None,
    };
    let verified = integrity::verify(&place.control, state.as_ref())
        .await
        .map_err(|err| CommandError::from_error(&err))?;
    if global.json {
        report::json(&document(&verified))?;
    } else {
        report::data(&summary(&verified))?;
        let look = process.look(global);
        let damages = verified.damages.iter();
        let (of_the_key, others): (Vec<&StateDamage>, Vec<&StateDamage>) =
            damages.partition(|one| matches!(one.kind, DamageKind::OtherKey));
        let texts = match of_the_key.as_slice() {
            [] => None,
            [damage] => Some(told(damage, look)),
            [first, ..] => Some(told_of_the_key(&of_the_key, first, look)),
        };
        let others = others.into_iter().map(|damage| told(damage, look));
        for text in texts.into_iter().chain(others) {
            report::say(&at_home(&text, global))?;
        }
    }
    Ok(if verified.damages.is_empty() {
        ExitStatus::Done
    } else {
        ExitStatus::Failed
    })
}

fn summary(verified: &IntegrityReport) -> String {
    let mut text = format!(
        "checked {} of {}: {} bytes, stored in {}\n",
        count(verified.versions, "version"),
        count(verified.states, "state"),
        verified.plain_bytes,
        verified.stored_bytes,
    );
    if verified.artifacts > 0 {
        let artifacts = usize::try_from(verified.artifacts).unwrap_or(usize::MAX);
        _ = writeln!(text, "and {}", count(artifacts, "artifact"));
    }
    let mut equal: BTreeMap<&str, usize> = BTreeMap::new();
    for refusal in &verified.refused {
        *equal.entry(kept(refusal)).or_default() += 1;
    }
    for refusal in &verified.refused {
        // The newest of equal writes is listed for all of them.
        match equal.get_mut(kept(refusal)) {
            Some(left) if *left > 1 => *left -= 1,
            _ => text.push_str(&aside(refusal, &verified.refused)),
        }
    }
    for (state, gone) in &verified.let_go {
        _ = writeln!(
            text,
            "{} of state `{state}` {} no longer kept: the newest {REFUSED_COUNT} of a state are, up to {} MB, for 30 days",
            count(*gone, "refused write"),
            if *gone == 1 { "is" } else { "are" },
            REFUSED_BYTES / (1024 * 1024),
        );
    }
    text
}

fn kept(refusal: &RefusedRequest) -> &str {
    refusal.kept.as_deref().unwrap_or_default()
}

fn aside(refusal: &RefusedRequest, all: &[RefusedRequest]) -> String {
    let others = all.iter().filter(|other| kept(other) == kept(refusal));
    let others = match others.count() {
        0 | 1 => String::new(),
        count => format!(" (the newest of {count} equal ones)"),
    };
    format!(
        "quarantined, number {}{others}: {} of state `{}` at {}: {}\n            `{}`\n",
        refusal.id,
        refusal.method,
        clean(&refusal.state.to_string()),
        refusal.at.strftime("%Y-%m-%d %H:%M:%S UTC"),
        clean(&refusal.reason),
        kept(refusal),
    )
}

/// One message for everything that needs the same missing key.
fn told_of_the_key(all: &[&StateDamage], first: &StateDamage, look: ViewOptions) -> String {
    let states: BTreeSet<_> = all.iter().map(|damage| &damage.state).collect();
    let versions = all.iter().map(|damage| damage.versions).sum();
    let message = format!(
        "{} of {} cannot be read with this master key",
        count(versions, "version"),
        count(states.len(), "state"),
    );
    errors::render(&message, &first.causes, &remedy(first), look)
}

fn told(damage: &StateDamage, look: ViewOptions) -> String {
    let newest = if damage.is_head { ", the newest," } else { "" };
    let found = match damage.kind {
        DamageKind::OtherKey => "cannot be read with this master key",
        DamageKind::Lost => "is not in the database, and does not open",
        DamageKind::Rival(_) => "was acknowledged twice",
        DamageKind::Unmarked => "is marked as acknowledged in the database only",
        DamageKind::Stale | DamageKind::OldHead | DamageKind::WithoutHead => {
            "is not in the database"
        }
        DamageKind::Unreadable if damage.versions > 1 => "cannot be read",
        DamageKind::Unreadable => "is damaged",
    };
    let state = &damage.state;
    let message = match damage.version {
        Some(version) if matches!(damage.kind, DamageKind::WithoutHead) => {
            format!("version {version} of state `{state}` is there, and none is served")
        }
        Some(version) if matches!(damage.kind, DamageKind::OldHead) => {
            format!("version {version} of state `{state}` is served, and is not the newest")
        }
        Some(_) if damage.versions > 1 => {
            format!(
                "all {} versions of state `{state}` {found}",
                damage.versions
            )
        }
        Some(version) => format!("version {version}{newest} of state `{state}` {found}"),
        None => format!("what is kept of the artifacts of state `{state}` {found}"),
    };
    errors::render(&message, &damage.causes, &remedy(damage), look)
}

fn remedy(damage: &StateDamage) -> Vec<String> {
    match &damage.kind {
        DamageKind::OtherKey => vec![OTHER_KEY.to_owned()],
        DamageKind::Rival(rival) => ways_to_settle(rival),
        DamageKind::Lost => ways_on(&damage.state, damage.readable.unwrap_or_default()),
        DamageKind::Stale | DamageKind::OldHead | DamageKind::WithoutHead => {
            vec!["`terrane state recover --into-home` writes it into the database".to_owned()]
        }
        DamageKind::Unmarked => {
            vec!["`terrane state recover --into-home` marks it again".to_owned()]
        }
        DamageKind::Unreadable => ways_to_repair(damage),
    }
}

fn ways_to_repair(damage: &StateDamage) -> Vec<String> {
    let mut hints = vec!["restore the file from a backup, then verify again".to_owned()];
    if damage.version.is_none() {
        hints.push(
            "or apply the stack again: what its engine writes then takes its place".to_owned(),
        );
    }
    if damage.is_head && damage.readable.is_none() {
        hints.push(begin_anew(&damage.state));
    }
    if let Some(readable) = damage.readable.filter(|_| damage.is_head) {
        hints.push(format!(
            "or continue from version {readable}: `terrane state rollback {} --to {readable} --reason \"…\"`",
            damage.state
        ));
    }
    hints
}

fn document(verified: &IntegrityReport) -> serde_json::Value {
    let damages = verified.damages.iter().map(|damage| {
        json!({
            "state": damage.state,
            "version": damage.version,
            "newest": damage.is_head,
            "readable": damage.readable,
            "causes": damage.causes,
        })
    });
    let refused = verified.refused.iter().map(|refusal| {
        json!({
            "number": refusal.id,
            "state": refusal.state,
            "method": refusal.method,
            "reason": refusal.reason,
            "at": refusal.at,
            "kept": refusal.kept,
        })
    });
    let let_go = verified.let_go.iter();
    let let_go = let_go.map(|(state, count)| json!({ "state": state, "count": count }));
    json!({
        "states": verified.states,
        "versions": verified.versions,
        "bytes": verified.plain_bytes,
        "stored_bytes": verified.stored_bytes,
        "artifacts": verified.artifacts,
        "damaged": damages.collect::<Vec<_>>(),
        "kept_aside": refused.collect::<Vec<_>>(),
        "let_go": let_go.collect::<Vec<_>>(),
    })
}
