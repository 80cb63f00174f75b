//! Which engine serves which stack.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use drivers::engine::{Engine, LocateError, Search, locate};
use model::engine::EngineRequirement;
use model::ids::StackName;

/// Finds an engine for each stack; equal wishes are looked up once.
pub fn find<'a>(
    wishes: impl Iterator<Item = (&'a StackName, &'a EngineRequirement)>,
    path: Option<&OsStr>,
    cache: &Path,
) -> Result<BTreeMap<StackName, Engine>, LocateError> {
    let mut known: Vec<(&EngineRequirement, Engine)> = Vec::new();
    let mut found = BTreeMap::new();
    for (stack, wish) in wishes {
        let engine = match known.iter().find(|(other, _)| *other == wish) {
            Some((_, engine)) => engine.clone(),
            None => {
                let engine = locate(wish, &Search::new(path, cache))?;
                known.push((wish, engine.clone()));
                engine
            }
        };
        found.insert(stack.clone(), engine);
    }
    Ok(found)
}
