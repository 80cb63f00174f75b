//! Results of state queries as data.

use control::state::queries::author::Author;
use control::state::queries::deleted::Deletion;
use control::state::queries::listing::StateLine;
use control::state::queries::version::VersionDocument;
use control::state::queries::versions::VersionLine;
use model::plan::PlanValue;
use model::state::{StateName, StateVersion, VersionMark};
use serde_json::{Value, json};

/// A value as data, or what may be shown of it.
pub(super) fn value(shown: &PlanValue) -> Value {
    match shown {
        PlanValue::Absent => Value::Null,
        PlanValue::Known(known) => json!({ "value": known }),
        PlanValue::Unknown => json!({ "unknown": true }),
        PlanValue::KnownAfter { stacks } => json!({ "unknown": true, "known_after": stacks }),
        PlanValue::Sensitive => json!({ "sensitive": true }),
        PlanValue::Masked { digest } => json!({ "sensitive": true, "digest": digest }),
    }
}

pub(super) fn state(name: &StateName) -> Value {
    json!({ "project": name.project, "name": name.name })
}

pub(super) fn version(version: &StateVersion) -> Value {
    json!({
        "state": state(&version.state),
        "version": version.version,
        "serial": version.serial,
        "lineage": version.lineage,
        "size": version.size,
        "mark": version.mark.map(VersionMark::as_str),
        "run": version.run.map(|run| run.to_string()),
        "at": version.created_at.to_string(),
    })
}

pub(super) fn author(author: &Author) -> Value {
    json!({
        "run": author.run.map(|run| run.to_string()),
        "change_set": author.change_set.map(|set| set.to_string()),
        "commit": author.commit.as_ref().map(|commit| {
            json!({ "id": commit.id, "subject": commit.subject, "dirty": commit.is_dirty })
        }),
        "person": author.person.as_ref().map(|actor| &actor.name),
    })
}

pub(crate) fn states(lines: &[StateLine]) -> Value {
    let states: Vec<Value> = lines
        .iter()
        .map(|line| {
            json!({
                "state": state(&line.state),
                "head": version(&line.head),
                "resources": line.resources.as_ref().ok(),
                "opaque": line.resources.as_ref().err().map(ToString::to_string),
                "lock": line.lock.as_ref().map(|lock| json!({
                    "id": lock.held.info.id,
                    "who": lock.held.info.who,
                    "operation": lock.held.info.operation,
                    "since": lock.held.since.to_string(),
                    "run": lock.held.run.map(|run| run.to_string()),
                    "alive": lock.is_alive,
                })),
                "author": author(&line.author),
            })
        })
        .collect();
    json!({ "states": states })
}

pub(crate) fn resources(asked: &VersionDocument) -> Value {
    let resources: Vec<Value> = asked
        .document
        .instances
        .iter()
        .map(|instance| {
            json!({
                "address": instance.address,
                "type": instance.resource_type,
                "provider": instance.provider,
                "tainted": instance.is_tainted,
                "deposed": instance.deposed,
            })
        })
        .collect();
    json!({ "version": version(&asked.version), "resources": resources })
}

pub(crate) fn versions(lines: &[VersionLine], deleted: Option<&Deletion>) -> Value {
    let versions: Vec<Value> = lines
        .iter()
        .map(|line| {
            let did = line.did.as_ref();
            let opaque = did.and_then(|did| did.opaque.as_deref());
            let counts = did.filter(|did| did.opaque.is_none()).map(|did| {
                let counts = did.counts;
                json!({
                    "resources": counts.resources,
                    "added": counts.added,
                    "changed": counts.changed,
                    "removed": counts.removed,
                    "others": counts.others,
                })
            });
            let mut answer = version(&line.version);
            answer["changes"] = counts.unwrap_or_default();
            answer["opaque"] = opaque.into();
            answer["author"] = author(&line.author);
            answer
        })
        .collect();
    let deleted =
        deleted.map(|deleted| json!({ "at": deleted.at.to_string(), "by": deleted.actor.as_ref().map(|actor| &actor.name) }));
    json!({ "versions": versions, "deleted": deleted })
}
