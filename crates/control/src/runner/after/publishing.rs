//! Publishing: the stack's facts, at every place its `publish` blocks name. Of a stack that was destroyed they are
//! withdrawn.

use std::collections::BTreeMap;

use model::facts::{FileChange, Publish, StateMark};
use model::sink::Sink;
use model::stage::{ResolvedBlock, StageBlock};
use model::state::Contents;
use serde_json::json;

use super::{Failure, Part, Report, count};
use crate::bootstrap::Ground;
use crate::facts::{self, Place, Publication};
use crate::sinks;

/// The kind of `sink` that is a file of the project, and no object of a cluster.
const FILE: &str = "file";

pub(super) async fn publish(part: &Part<'_>, blocks: &[StageBlock]) -> Result<Report, Failure> {
    let (job, spec) = (part.job, part.job.spec);
    let resolved = part.resolve(blocks)?;
    let blocks = resolved
        .iter()
        .map(Publish::read)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|err| Failure::because("could not work out what is published", &err))?;
    let places = Place::read_all(&spec.facts, &part.values, own_remote(part)?.as_deref())
        .map_err(|err| with_hint("could not find a place of its facts", &err, err.hint()))?;
    let state = job.control.state_name(&spec.stack.state);
    let head = job.control.store.state_head(&state).await;
    let head = head.map_err(|err| Failure::because("could not read the state", &err))?;
    let has_resources = head
        .as_ref()
        .is_some_and(|head| head.contents != Contents::Nothing);
    if !spec.destroy && !has_resources && part.values.outputs().is_empty() {
        return Err(
            Failure::new("nothing was published: the stack has nothing applied any more").refused(),
        );
    }
    let mark = head.as_ref().map(|head| StateMark {
        serial: head.serial,
        lineage: head.lineage.clone(),
    });
    let publication = Publication {
        root: part.root,
        asker: job.asker.env(),
        places: &places,
        stack: &spec.stack.name,
        state_name: &spec.stack.state,
        run: Some(job.run),
        state: mark.as_ref(),
        source: job.set.request.commit.as_deref(),
        at: head.map_or(job.set.created_at, |head| head.created_at),
        outputs: part.values.outputs(),
        blocks: &blocks,
        // Only who reads the whole project as it is now knows which stacks are gone: `facts publish`.
        stacks: &BTreeMap::new(),
        take_over: None,
    };
    let published = facts::publish(job.control, &publication)
        .await
        .map_err(|err| with_hint("nothing more was published", &err, err.hint()))?;
    let mut written = 0;
    let mut all = 0;
    for one in &published {
        for file in &one.files {
            all += 1;
            written += usize::from(file.what != FileChange::Unchanged);
            part.log
                .say(&format!("{}: {} {}", one.place, file.path, word(file.what)));
        }
    }
    let objects = put(part, &publication, &resolved).await?;
    let mut summary = match written {
        0 => format!("{} as they are", count(all, "file")),
        _ => format!("{written} of {} written", count(all, "file")),
    };
    if !objects.is_empty() {
        summary = format!("{summary}, {} in clusters", count(objects.len(), "object"));
    }
    Ok(Report {
        summary,
        details: json!({ "published": published, "objects": objects }),
    })
}

/// Facts that go into clusters, too.
async fn put(
    part: &Part<'_>,
    publication: &Publication<'_>,
    resolved: &[ResolvedBlock],
) -> Result<Vec<String>, Failure> {
    let files = facts::prepare_files(publication)
        .map_err(|err| with_hint("could not prepare the facts", &err, err.hint()))?;
    let ground = Ground {
        source: part.root,
        env: &part.env,
        cache: &part.job.control.cache,
        held: None,
    };
    let mut said = Vec::new();
    for block in resolved {
        let path = block.attrs.get("path").and_then(|path| path.as_str());
        let name = match &block.each {
            Some(key) => block
                .name
                .strip_suffix(key)
                .and_then(|it| it.strip_suffix('-')),
            None => Some(block.name.as_str()),
        };
        let mut there = name.and_then(|name| files.get(name)).into_iter().flatten();
        let Some(file) = there.find(|file| Some(file.path.as_str()) == path) else {
            continue;
        };
        for inner in block.blocks.iter().filter(|inner| inner.kind != FILE) {
            let sink = Sink::read(inner)
                .map_err(|err| Failure::because("could not work out a `sink`", &err))?;
            let sensitive = file.sensitive_paths();
            let outcome = sinks::put(&sink, &file.values, &sensitive, false, ground).await;
            let outcome = outcome
                .map_err(|err| with_hint("could not put facts into a cluster", &err, err.hint()))?;
            let line = format!("{} {}: {outcome}", inner.kind, file.path);
            part.log.say(&line);
            said.push(line);
        }
    }
    Ok(said)
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
    }
}
