//! Everything that the project file defines for one stack.

use serde::Serialize;

use crate::base::diagnostic::Location;
use crate::project::context::Context;
use crate::project::{Project, Stack, Target};
use crate::stage::StageBlock;
use crate::stage::facts::FactsBranch;

/// A stack's own block, its target, its attached contexts and the places of its facts. Equal if they mean the same.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StackDefinition<'a> {
    stack: Stack,
    target: Option<&'a Target>,
    contexts: Vec<Context>,
    facts: Vec<FactsBranch>,
}

impl<'a> StackDefinition<'a> {
    pub fn of(project: &'a Project, stack: &Stack) -> Self {
        let contexts = stack.contexts.iter();
        let contexts = contexts.filter_map(|name| project.contexts.get(name));
        let places = stack.stages.publish.iter();
        let places = places.filter_map(|block| project.facts.get(&block.name));
        Self {
            stack: without_places(stack),
            target: project.targets.get(&stack.target),
            contexts: contexts.map(Context::without_places).collect(),
            facts: places
                .map(|place| FactsBranch {
                    declared_at: Location::default(),
                    ..place.clone()
                })
                .collect(),
        }
    }
}

/// The location of a block does not affect its meaning.
fn without_places(stack: &Stack) -> Stack {
    let mut stack = stack.clone();
    stack.declared_at = Location::default();
    stack.inputs_at.clear();
    for edge in &mut stack.edges {
        edge.at = Location::default();
    }
    let stages = &mut stack.stages;
    for blocks in [
        &mut stages.publish,
        &mut stages.bootstrap,
        &mut stages.gates,
    ] {
        blocks.iter_mut().for_each(forget_place);
    }
    stack
}

fn forget_place(block: &mut StageBlock) {
    block.at = Location::default();
    block.blocks.iter_mut().for_each(forget_place);
}
