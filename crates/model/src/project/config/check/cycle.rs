//! Finds stacks that depend on each other in a cycle: one finding per cycle, with one location per step.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::diagnostic::Finding;
use crate::base::ids::StackName;
use crate::project::config::check::Drafts;
use crate::project::config::findings::Findings;
use crate::project::{Edge, EdgeKind};

pub(crate) fn check(findings: &mut Findings, drafts: &Drafts) {
    let mut done: BTreeSet<&StackName> = BTreeSet::new();
    for start in drafts.keys() {
        if let Some(circle) = circle_from(start, drafts, &mut done) {
            findings.push(finding(&circle));
        }
    }
}

/// Searches from a stack without recursion, since a chain may be thousands of stacks long.
fn circle_from<'a>(
    start: &'a StackName,
    drafts: &'a Drafts,
    done: &mut BTreeSet<&'a StackName>,
) -> Option<Vec<(&'a StackName, &'a Edge)>> {
    if done.contains(start) {
        return None;
    }
    let mut found = None;
    // The current path: each stack with the number of its edges already followed.
    let mut way: Vec<(&StackName, usize)> = vec![(start, 0)];
    let mut place: BTreeMap<&StackName, usize> = BTreeMap::from([(start, 0)]);
    while let Some((name, taken)) = way.last_mut() {
        let edges = drafts
            .get(*name)
            .map_or(&[][..], |draft| &draft.stack.edges);
        let Some(edge) = edges.get(*taken) else {
            place.remove(*name);
            done.insert(*name);
            way.pop();
            continue;
        };
        *taken += 1;
        if let Some(from) = place.get(&edge.upstream) {
            if found.is_none() {
                found = Some(steps(way.get(*from..).unwrap_or_default(), drafts));
            }
        } else if !done.contains(&edge.upstream)
            && let Some((upstream, _)) = drafts.get_key_value(&edge.upstream)
        {
            place.insert(upstream, way.len());
            way.push((upstream, 0));
        }
    }
    found
}

/// The edges along a path. The last one leads back to its start.
fn steps<'a>(way: &[(&'a StackName, usize)], drafts: &'a Drafts) -> Vec<(&'a StackName, &'a Edge)> {
    way.iter()
        .filter_map(|(name, taken)| {
            let edge = drafts.get(*name)?.stack.edges.get(taken.checked_sub(1)?)?;
            Some((*name, edge))
        })
        .collect()
}

fn finding(circle: &[(&StackName, &Edge)]) -> Finding {
    let first = circle
        .iter()
        .enumerate()
        .min_by_key(|(_, (_, edge))| &edge.at)
        .map_or(0, |(at, _)| at);
    let (tail, head) = circle.split_at(first);
    head.iter().chain(tail).fold(
        Finding::error(
            "dependency-cycle",
            "stacks depend on each other in a circle",
        ),
        |finding, (name, edge)| {
            let label = match &edge.kind {
                EdgeKind::Order => format!("`{name}` waits for `{}`", edge.upstream),
                EdgeKind::Output { .. } => {
                    format!("`{name}` needs an output of `{}`", edge.upstream)
                }
            };
            finding.at(edge.at.clone(), label)
        },
    )
}
