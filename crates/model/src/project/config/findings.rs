//! Collects findings: without duplicates, limited in number and length.

use std::collections::HashSet;

use crate::base::diagnostic::{Finding, Location};

/// More findings are not shown.
const MAX_FINDINGS: usize = 1000;

/// Findings without duplicates.
#[derive(Default)]
pub(crate) struct Findings {
    list: Vec<Finding>,
    said: HashSet<(&'static str, String, Location)>,
}

impl Findings {
    pub(crate) fn push(&mut self, mut finding: Finding) {
        shorten(&mut finding.message);
        finding
            .places
            .iter_mut()
            .for_each(|place| shorten(&mut place.label));
        finding.hint.iter_mut().for_each(shorten);
        let at = finding.places.first().map(|place| place.at.clone());
        let key = (
            finding.code,
            finding.message.clone(),
            at.unwrap_or_default(),
        );
        if self.list.len() < MAX_FINDINGS && self.said.insert(key) {
            self.list.push(finding);
        }
    }

    /// Adds a finding regardless of the limit.
    pub(crate) fn push_always(&mut self, finding: Finding) {
        self.list.push(finding);
    }

    /// Whether the limit is reached, so that further checks can be skipped.
    pub(crate) fn is_full(&self) -> bool {
        self.list.len() >= MAX_FINDINGS
    }

    pub(crate) fn into_list(self) -> Vec<Finding> {
        self.list
    }
}

/// Shortens very long words.
fn shorten(text: &mut String) {
    const LIMIT: usize = 600;
    if text.len() > LIMIT {
        let end = (0..=LIMIT).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
}
