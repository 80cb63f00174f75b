//! Which module seems to need which: by remote states, and by equal names of outputs and variables. The edges never
//! form a cycle, so that accepting every proposal is valid.

use std::collections::{BTreeMap, BTreeSet};

use super::RootModule;
use crate::project::module::remote_states::BackendIndex;

/// Names that are too common to mean anything.
const COMMON: [&str; 8] = [
    "environment",
    "id",
    "labels",
    "location",
    "name",
    "prefix",
    "region",
    "tags",
];

pub(super) struct Edges {
    /// Downstream to upstream, with the name of the remote state.
    read: Vec<BTreeMap<usize, String>>,
    guessed: Vec<BTreeMap<usize, String>>,
    /// A downstream's variable to the upstream with that output.
    fed: Vec<BTreeMap<String, usize>>,
}

impl Edges {
    pub(super) fn new(found: &[&RootModule], names: &[String]) -> Self {
        let mut edges = Self {
            read: vec![BTreeMap::new(); found.len()],
            guessed: vec![BTreeMap::new(); found.len()],
            fed: vec![BTreeMap::new(); found.len()],
        };
        let modules = found.iter();
        let keepers =
            BackendIndex::new(modules.map(|it| (it.dir.as_str(), it.backend_text.as_str())));
        // Certain edges come first, so that no guess prevents them.
        for (down, module) in found.iter().enumerate() {
            for remote in &module.remote_states {
                if let Some(up) = keepers.state_of(down, &remote.config)
                    && !edges.leads(up, down)
                {
                    edges.read[down].insert(up, remote.name.clone());
                }
            }
        }
        for (down, module) in found.iter().enumerate() {
            for remote in &module.remote_states {
                if edges.read[down].values().any(|name| *name == remote.name) {
                    continue;
                }
                if let Some(up) = called_like(names, down, &remote.name)
                    && !edges.read[down].contains_key(&up)
                    && !edges.leads(up, down)
                {
                    edges.guessed[down].insert(up, remote.name.clone());
                }
            }
        }
        for (down, module) in found.iter().enumerate() {
            for variable in module.variables.keys() {
                if let Some(up) = giver(found, down, variable)
                    && !edges.leads(up, down)
                {
                    edges.fed[down].insert(variable.clone(), up);
                }
            }
        }
        edges
    }

    /// Modules whose state a module reads, with the name of its `data` block.
    pub(super) fn read_by(&self, down: usize) -> impl Iterator<Item = (usize, &str)> {
        self.read[down]
            .iter()
            .map(|(up, name)| (*up, name.as_str()))
    }

    pub(super) fn guessed_by(&self, down: usize) -> impl Iterator<Item = (usize, &str)> {
        self.guessed[down]
            .iter()
            .map(|(up, name)| (*up, name.as_str()))
    }

    /// A module's variables that another module's output could set.
    pub(super) fn fed(&self, down: usize) -> impl Iterator<Item = (&str, usize)> {
        self.fed[down].iter().map(|(name, up)| (name.as_str(), *up))
    }

    pub(super) fn feeds(&self, down: usize, variable: &str) -> bool {
        self.fed[down].contains_key(variable)
    }

    /// Whether `from` depends on `to`, directly or indirectly.
    fn leads(&self, from: usize, to: usize) -> bool {
        let mut seen = BTreeSet::new();
        let mut open = vec![from];
        while let Some(number) = open.pop() {
            if number == to {
                return true;
            }
            if seen.insert(number) {
                let states = self.read[number].keys().chain(self.guessed[number].keys());
                open.extend(states.chain(self.fed[number].values()));
            }
        }
        false
    }
}

fn called_like(names: &[String], down: usize, remote: &str) -> Option<usize> {
    let wanted = remote.replace('_', "-").to_lowercase();
    let near = |name: &String| *name == wanted || name.ends_with(&format!("-{wanted}"));
    let like = names
        .iter()
        .enumerate()
        .filter(|(at, name)| *at != down && near(name));
    only(like.map(|(at, _)| at))
}

fn giver(found: &[&RootModule], down: usize, variable: &str) -> Option<usize> {
    if COMMON.contains(&variable) {
        return None;
    }
    let others = (0..found.len()).filter(|&up| up != down);
    only(others.filter(|&up| found[up].outputs.contains(variable)))
}

fn only(mut numbers: impl Iterator<Item = usize>) -> Option<usize> {
    numbers.next().filter(|_| numbers.next().is_none())
}
