//! Publishing: the stack's facts, at every place its `publish` blocks name. Of a stack that was destroyed they are
//! withdrawn.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::path::Path;

use model::facts::{FileChange, Publish, StateMark};
use model::project::FactsPlace;
use model::run::RunSpec;
use model::stage::StageBlock;
use model::state::Contents;
use serde_json::json;

use super::{Failure, Part, Report, count};
use crate::bootstrap::Ground;
use crate::facts::{self, Place, Publication, Searching};
use crate::stages::Side;

/// Whether it takes more of the source than what the project file says: contracts, `.sops.yaml`, plugins of a
/// kubeconfig.
pub(super) fn reads_source(spec: &RunSpec) -> bool {
    let blocks = &spec.stack.stages.publish;
    let reads = |block: &StageBlock| {
        block.attrs.contains_key("contract")
            || !block.blocks.is_empty()
            || spec
                .facts
                .get(&block.name)
                .is_some_and(FactsPlace::may_encrypt)
    };
    !spec.destroy && blocks.iter().any(reads)
}

pub(super) async fn publish(
    part: &mut Part<'_>,
    source: &Path,
    blocks: &[StageBlock],
) -> Result<Report, Failure> {
    let (job, spec) = (part.job, part.job.spec);
    let resolved = part.resolve(blocks)?;
    let said = resolved.iter().map(Publish::read);
    let said = said
        .collect::<Result<Vec<_>, _>>()
        .map_err(|err| Failure::because("could not work out what is published", &err))?;
    let sinks = facts::sinks_of(&resolved, blocks)
        .map_err(|err| Failure::because("could not work out what is published", &err))?;
    let own = own_remote(part)?;
    let places = Place::read_all(&spec.facts, &part.values, own.as_deref())
        .map_err(|err| with_hint("could not find a place of its facts", &err, err.hint()))?;
    let state = job.control.state_name(&spec.stack.state);
    let head = job.control.store.state_head(&state).await;
    let head = head.map_err(|err| Failure::because("could not read the state", &err))?;
    let has_resources = head
        .as_ref()
        .is_some_and(|head| head.contents != Contents::Nothing);
    if !spec.destroy && !blocks.is_empty() && !has_resources && part.values.outputs().is_empty() {
        return Err(
            Failure::new("nothing was published: the stack has nothing applied any more").refused(),
        );
    }
    let mark = head.as_ref().map(|head| StateMark {
        serial: head.serial,
        lineage: head.lineage.clone(),
    });
    let searching = Searching {
        control: job.control,
        side: &Side {
            asker: job.asker,
            root: part.root,
            env: &part.env,
        },
        stack: &spec.stack.name,
        places: &places,
        blocks: &said,
        sinks: &sinks,
        own: own.as_deref(),
    };
    let former = facts::find_former(&spec.standing, &searching, &mut part.values).await;
    let publication = Publication {
        root: part.root,
        tree: source,
        asker: job.asker.env(),
        places: &places,
        stack: &spec.stack.name,
        state_name: &spec.stack.state,
        run: Some(job.run),
        state: mark.as_ref(),
        source: job.set.request.commit.as_deref(),
        version: head.as_ref().map(|head| head.version),
        at: job.control.now(),
        outputs: part.values.outputs(),
        blocks: &said,
        sinks: &sinks,
        former: &former,
        ground: Ground {
            source,
            env: &part.env,
            hidden: &[],
            cache: &job.control.cache,
            held: None,
        },
        is_destroyed: spec.destroy,
        // Only who reads the whole project as it is now knows which stacks are gone: `facts publish`.
        stacks: &BTreeMap::new(),
        take_over: None,
    };
    let done = facts::publish(job.control, &publication)
        .await
        .map_err(|err| {
            // That it is not published, the stage says itself.
            let failure = match err.source() {
                Some(cause) => Failure::because(&err.to_string(), cause),
                None => Failure::new(err.to_string()),
            };
            failure.told(err.hint(&spec.stack.name), err.is_refusal())
        })?;
    Ok(report(part, &done))
}

fn report(part: &Part<'_>, done: &facts::Done) -> Report {
    let (mut written, mut withdrawn, mut all) = (0, 0, 0);
    for one in &done.places {
        for file in &one.files {
            match file.what {
                FileChange::Written => written += 1,
                FileChange::Withdrawn => withdrawn += 1,
                FileChange::Unchanged | FileChange::Left => {}
            }
            all += usize::from(matches!(
                file.what,
                FileChange::Written | FileChange::Unchanged
            ));
            let word = word(file.what);
            part.log
                .say(&format!("{}: {} {word}", one.place, file.path));
        }
        for undone in &one.undone {
            let line = format!("{}: {undone}", one.place);
            part.log.say(&line);
            part.job.warn(&line);
        }
    }
    for one in &done.elsewhere {
        let line = format!("{}: {}", one.what, one.outcome);
        part.log.say(&line);
        if one.is_left {
            part.job.warn(&line);
        }
    }
    let mut parts = Vec::new();
    match (all, written) {
        (0, _) => {}
        (1, 0) => parts.push("1 file as it is".to_owned()),
        (_, 0) => parts.push(format!("{} as they are", count(all, "file"))),
        _ => parts.push(format!("{written} of {} written", count(all, "file"))),
    }
    if withdrawn > 0 {
        parts.push(format!("{} withdrawn", count(withdrawn, "file")));
    }
    match done.elsewhere.len() {
        0 => {}
        objects => parts.push(format!("{} elsewhere", count(objects, "place"))),
    }
    if parts.is_empty() {
        parts.push("nothing to publish".to_owned());
    }
    Report {
        summary: parts.join(", "),
        details: json!({ "published": done.places, "elsewhere": done.elsewhere }),
        changed: Some(written + withdrawn > 0 || done.elsewhere.iter().any(|one| one.is_changed)),
    }
}

/// The project's own repository, where a place names none.
fn own_remote(part: &Part<'_>) -> Result<Option<String>, Failure> {
    let mut places = part.job.spec.facts.values();
    if places.all(|place| place.repository.is_some()) {
        return Ok(None);
    }
    facts::own_remote(part.job.asker.env(), part.root)
        .map_err(|err| Failure::because("could not look for the project's own remote", &err))
}

fn with_hint(deed: &str, err: &dyn std::error::Error, hint: Option<String>) -> Failure {
    let failure = Failure::because(deed, err);
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn word(what: FileChange) -> &'static str {
    match what {
        FileChange::Written => "written",
        FileChange::Unchanged => "as it is",
        FileChange::Withdrawn => "withdrawn",
        FileChange::Left => "left as it is: somebody else changed it",
    }
}
