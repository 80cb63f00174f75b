//! `terrane state diff`

use control::state::queries::version::{self, ValueDigests, VersionDocument};
use jiff::Timestamp;
use model::state::diff::{SensitiveDisplay, diff as compare};
use model::state::version_ref::VersionRef;

use super::query_args::{RevealArgs, not_a_moment, say_if_copy, shown};
use crate::commands::home_args::HomeHandle;
use crate::global::Global;
use crate::view::state as view;
use crate::{CommandError, ExitStatus, Process, report};

/// Show what differs between two versions of a state
///
/// Without versions: what the newest one changed. With one: what changed from it to the newest.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane state diff network\n  terrane state diff network 3\n  terrane state diff network 3 5\n  terrane state diff network serial:17 serial:18\n  terrane state diff network 2d"
)]
pub(crate) struct DiffArgs {
    /// A stack of the project here, or `PROJECT/NAME`
    state: String,
    /// A version, `serial:N`, or a time such as `2h` or `2026-11-01T10:00`
    from: Option<String>,
    /// The same; the newest version if it is not given
    to: Option<String>,
    #[command(flatten)]
    reveal: RevealArgs,
}

pub(crate) async fn diff(
    args: &DiffArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let (place, state) = HomeHandle::open_state(global, process, &args.state).await?;
    let now = Timestamp::now();
    let pick = |word: &Option<String>| {
        let word = word.as_ref().map(|word| VersionRef::parse(word, now));
        word.transpose().map_err(|err| not_a_moment(&err))
    };
    let (from, to) = (pick(&args.from)?, pick(&args.to)?);
    let control = &place.control;
    let to = version::document(control, &state, to.unwrap_or(VersionRef::Head));
    let to = to.await.map_err(|err| shown(&err))?;
    let from: Option<VersionDocument> = match from {
        Some(from) => Some(version::document(control, &state, from).await),
        None => match version::predecessor(control, &to.version).await {
            Ok(None) => None,
            Ok(Some(before)) => {
                Some(version::document(control, &state, VersionRef::Version(before.version)).await)
            }
            Err(err) => return Err(shown(&err)),
        },
    }
    .transpose()
    .map_err(|err| shown(&err))?;
    let numbers: Vec<String> = from
        .iter()
        .chain([&to])
        .map(|asked| asked.version.version.to_string())
        .collect();
    let detail = format!("the difference of versions {}", numbers.join(" and "));
    let reveal = args.reveal.reveal(control, &state, global, process, detail);
    let revealed = reveal.await?;
    let digests = ValueDigests::of(control).await.map_err(|err| shown(&err))?;
    let short = |value: &serde_json::Value| digests.short(value);
    let showing = if revealed {
        SensitiveDisplay::Revealed
    } else {
        SensitiveDisplay::Masked(&short)
    };
    let before = from
        .as_ref()
        .map(|asked| asked.document.clone())
        .unwrap_or_default();
    let difference = compare(&before, &to.document, showing);
    let before = from.as_ref().map(|asked| &asked.version);
    if global.json {
        report::json(&view::diff::json(before, &to.version, &difference))?;
    } else {
        let look = process.data_look(global);
        let full = args.reveal.full;
        report::data(&view::diff::text(
            before,
            &to.version,
            difference,
            now,
            full,
            look,
        ))?;
        say_if_copy(&to.version)?;
    }
    if revealed {
        place.tell_git(global, process).await?;
    }
    Ok(ExitStatus::Done)
}
