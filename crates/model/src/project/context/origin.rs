//! The origin of each value of a stack, and what it overrides. Values are shown as written: a secret is shown as its
//! reference.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    ClusterSecret, Context, ContextEntryKind, Hook, HookStage, HookTiming, cluster_secrets,
    hooks_around,
};
use crate::base::diagnostic::Location;
use crate::hcl::expression::Input;
use crate::project::module::Module;
use crate::project::{Project, Stack};

/// Everything that a stack gets, by name.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueOrigins<'a> {
    /// Lowest precedence first.
    pub contexts: Vec<&'a Context>,
    pub env: BTreeMap<&'a str, ValueOrigin<'a>>,
    pub vars: BTreeMap<&'a str, ValueOrigin<'a>>,
    pub files: BTreeMap<&'a str, ValueOrigin<'a>>,
    /// In execution order, stage by stage.
    pub hooks: Vec<(&'a Context, &'a Hook)>,
    /// For its clusters. The last part is the reason why a secret has no effect, if there is one.
    pub secrets: Vec<(&'a Context, &'a ClusterSecret, Option<&'static str>)>,
}

/// One value: the one with the highest precedence.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueOrigin<'a> {
    pub taken: SetValue<'a>,
    /// Highest precedence first.
    pub overrides: Vec<SetValue<'a>>,
    /// Whether the module does not declare the variable.
    pub is_ignored: bool,
}

/// One of the values that were set for a name.
#[derive(Clone, Debug, PartialEq)]
pub struct SetValue<'a> {
    pub source: ValueSource<'a>,
    pub value: String,
    pub at: Location,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueSource<'a> {
    /// The stack's own `inputs`.
    Inputs,
    Context(&'a Context),
    /// A context's `pass_env`, with the matching pattern.
    Passed(&'a Context, &'a str),
}

impl<'a> ValueOrigins<'a> {
    /// `caller` are the names in the requester's environment, which `pass_env` may match. `module` is the stack's root
    /// module, if it could be read.
    pub fn of(
        project: &'a Project,
        stack: &'a Stack,
        module: Option<&Module>,
        caller: &'a [String],
        matches: fn(&str, &str) -> bool,
    ) -> Self {
        let names = stack.contexts.iter();
        let contexts: Vec<&Context> = names
            .filter_map(|name| project.contexts.get(name))
            .collect();
        let mut origins = Self {
            env: BTreeMap::new(),
            vars: BTreeMap::new(),
            files: BTreeMap::new(),
            hooks: hooks(&contexts),
            secrets: secrets(&contexts, stack),
            contexts,
        };
        for context in origins.contexts.clone() {
            for name in caller {
                let mut patterns = context.pass_env.iter();
                if let Some(pattern) = patterns.find(|pattern| matches(pattern, name)) {
                    let taken = SetValue {
                        source: ValueSource::Passed(context, pattern),
                        value: "(from the caller)".to_owned(),
                        at: context.written.pass_env_at.clone(),
                    };
                    put(&mut origins.env, name, taken);
                }
            }
            for kind in ContextEntryKind::ALL {
                let map = match kind {
                    ContextEntryKind::Env => &mut origins.env,
                    ContextEntryKind::Vars => &mut origins.vars,
                    ContextEntryKind::Files => &mut origins.files,
                };
                for (name, input) in context.entries(kind) {
                    let taken = SetValue {
                        source: ValueSource::Context(context),
                        value: as_written(input, kind),
                        at: context.entry_at(kind, name),
                    };
                    put(map, name, taken);
                }
            }
        }
        for (name, input) in &stack.inputs {
            let taken = SetValue {
                source: ValueSource::Inputs,
                value: as_written(input, ContextEntryKind::Vars),
                at: stack.inputs_at.get(name).cloned().unwrap_or_default(),
            };
            put(&mut origins.vars, name, taken);
        }
        if let Some(module) = module.filter(|module| module.is_complete) {
            for (name, origin) in &mut origins.vars {
                origin.is_ignored = !module.variables.contains_key(*name);
            }
        }
        origins
    }
}

fn put<'a>(map: &mut BTreeMap<&'a str, ValueOrigin<'a>>, name: &'a str, taken: SetValue<'a>) {
    if let Some(origin) = map.get_mut(name) {
        let before = std::mem::replace(&mut origin.taken, taken);
        origin.overrides.insert(0, before);
        return;
    }
    let origin = ValueOrigin {
        taken,
        overrides: Vec::new(),
        is_ignored: false,
    };
    map.insert(name, origin);
}

fn hooks<'a>(contexts: &[&'a Context]) -> Vec<(&'a Context, &'a Hook)> {
    let mut all = Vec::new();
    for stage in HookStage::ALL {
        for when in [HookTiming::Before, HookTiming::After] {
            all.extend(hooks_around(contexts, when, stage));
        }
    }
    all
}

fn secrets<'a>(
    contexts: &[&'a Context],
    stack: &Stack,
) -> Vec<(&'a Context, &'a ClusterSecret, Option<&'static str>)> {
    let mut clusters = stack.stages.bootstrap.iter();
    let has_cluster = clusters.any(|block| block.attrs.contains_key("kubeconfig"));
    let unused = |secret: &ClusterSecret| {
        let mut blocks = stack.stages.bootstrap.iter().flat_map(|it| &it.blocks);
        if !has_cluster {
            Some("the stack has no `bootstrap` with a `kubeconfig`")
        } else if !blocks.any(|block| *block == secret.block) {
            Some("the `bootstrap` has its own")
        } else {
            None
        }
    };
    let secrets = cluster_secrets(contexts).into_iter();
    secrets
        .map(|(context, secret)| (context, secret, unused(secret)))
        .collect()
}

/// A value as in the project file. For a file, only its length.
fn as_written(input: &Input, kind: ContextEntryKind) -> String {
    match (input, kind) {
        (Input::Known(Value::String(text)), ContextEntryKind::Files) => {
            format!("{} bytes", text.len())
        }
        (Input::Known(value), _) => value.to_string(),
        (Input::Expression(expression), _) => {
            let words: Vec<&str> = expression.text.split_whitespace().collect();
            words.join(" ")
        }
    }
}
