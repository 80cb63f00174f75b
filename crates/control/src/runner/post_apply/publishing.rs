//! Publishing: writes the stack's facts to every place that its `publish` blocks name. The facts of a
//! destroyed stack are withdrawn.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::path::Path;

use model::run::RunSpec;
use model::stage::StageBlock;
use model::stage::facts::FactsBranch;
use model::stage::facts::{FileChange, Publish, StateMark};
use model::state::Contents;
use serde_json::json;

use super::{Failure, StageReport, StageWork, count};
use crate::stage::cluster::ClusterContext;
use crate::stage::facts::{self, ClusterSink, Destination, Publication, PublishOutcome};

/// Whether publishing reads more of the source than the project file: contracts, `.sops.yaml`, kubeconfig
/// plugins.
pub(super) fn reads_source(spec: &RunSpec) -> bool {
    let blocks = &spec.stack.stages.publish;
    let reads = |block: &StageBlock| {
        block.attrs.contains_key("contract")
            || !block.blocks.is_empty()
            || spec
                .facts
                .get(&block.name)
                .is_some_and(FactsBranch::may_encrypt)
    };
    !spec.destroy && blocks.iter().any(reads)
}

pub(super) async fn publish(
    part: &StageWork<'_>,
    source: &Path,
    blocks: &[StageBlock],
) -> Result<StageReport, Failure> {
    let (job, spec) = (part.job, part.job.spec);
    let (publish, sinks) = publish_blocks(part, blocks)?;
    let asker = job.asker.env();
    let own = facts::own_remote(asker, part.root, spec.facts.values())
        .map_err(|err| Failure::because("cannot read the project's own remote", &err))?;
    let places = Destination::read_all(&spec.facts, &part.values, own.as_deref())
        .map_err(|err| Failure::explained("cannot find a location of its facts", &err))?;
    let state = job.control.state_name(&spec.stack.state);
    let head = job.control.store.state_head(&state).await;
    let head = head.map_err(|err| Failure::because("cannot read the state", &err))?;
    let has_resources = head
        .as_ref()
        .is_some_and(|head| head.contents != Contents::Nothing);
    if !spec.destroy && !blocks.is_empty() && !has_resources && part.values.outputs().is_empty() {
        return Err(
            Failure::new("nothing was published: the stack is no longer applied").refused(),
        );
    }
    let mark = head.as_ref().map(|head| StateMark {
        serial: head.serial,
        lineage: head.lineage.clone(),
    });
    let publication = Publication {
        root: part.root,
        tree: source,
        asker,
        places: &places,
        stack: &spec.stack.name,
        state_name: &spec.stack.state,
        run: Some(job.run),
        state: mark.as_ref(),
        source: job.set.request.commit.as_deref(),
        at: job.control.now(),
        outputs: part.values.outputs(),
        blocks: &publish,
        sinks: &sinks,
        locations: &spec.fact_locations,
        cluster: ClusterContext {
            source,
            env: &part.env,
            hidden: &part.hidden,
            cache: &job.control.cache,
            held: None,
        },
        is_destroyed: spec.destroy,
        // A run has no list of the project's current stacks; `facts publish` has one.
        stacks: &BTreeMap::new(),
        take_over: None,
    };
    let done = facts::publish(job.control, &publication)
        .await
        .map_err(|err| {
            // The failed stage already shows that nothing was published.
            let failure = match err.source() {
                Some(cause) => Failure::because(&err.to_string(), cause),
                None => Failure::new(err.to_string()),
            };
            failure.explain(&err)
        })?;
    Ok(report(part, &done))
}

/// What the blocks publish, and their sinks in clusters. A destroyed stack publishes nothing. Its sinks are
/// resolved with the values from before the destroy.
fn publish_blocks(
    part: &StageWork<'_>,
    blocks: &[StageBlock],
) -> Result<(Vec<Publish>, Vec<ClusterSink>), Failure> {
    if part.job.spec.destroy {
        // Without the old values, the objects are reported as left.
        let resolved = part.values.resolve(blocks).unwrap_or_default();
        return Ok((Vec::new(), facts::sinks_of(&resolved).unwrap_or_default()));
    }
    let resolved = part.resolve(blocks)?;
    let publish = resolved.iter().map(Publish::read);
    let publish = publish
        .collect::<Result<Vec<_>, _>>()
        .map_err(|err| Failure::because("cannot read what is published", &err))?;
    let sinks = facts::sinks_of(&resolved)
        .map_err(|err| Failure::because("cannot read what is published", &err))?;
    Ok((publish, sinks))
}

fn report(part: &StageWork<'_>, done: &PublishOutcome) -> StageReport {
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
        (1, 0) => parts.push("1 file unchanged".to_owned()),
        (_, 0) => parts.push(format!("{} unchanged", count(all, "file"))),
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
    StageReport {
        summary: parts.join(", "),
        details: json!({ "published": done.places, "elsewhere": done.elsewhere }),
        changed: Some(written + withdrawn > 0 || done.elsewhere.iter().any(|one| one.is_changed)),
    }
}

fn word(what: FileChange) -> &'static str {
    match what {
        FileChange::Written => "written",
        FileChange::Unchanged => "unchanged",
        FileChange::Withdrawn => "withdrawn",
        FileChange::Left => "not changed: another writer changed it",
    }
}
