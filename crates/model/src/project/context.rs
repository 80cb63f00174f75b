//! A named bundle of what stacks get from outside their modules: environment, variables, files, hooks, and secrets for
//! their clusters.
//!
//! Not here: reading the blocks (`config::contexts`), which stacks get which (`config::attach`), the final origin of a
//! stack's values (`context::origin`).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::base::diagnostic::Location;
use crate::base::ids::StackName;
use crate::hcl::expression::Input;
use crate::project::{Project, Stack};
use crate::stage::Stage;
use crate::stage::StageBlock;

mod origin;

pub use origin::{SetValue, ValueOrigin, ValueOrigins, ValueSource};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Context {
    pub name: String,
    pub priority: i64,
    pub env: BTreeMap<String, Input>,
    /// Names or globs of variables that are passed through from the caller's environment.
    pub pass_env: Vec<String>,
    pub vars: BTreeMap<String, Input>,
    /// Written to the stack's directory with mode 0600, by relative path.
    pub files: BTreeMap<String, Input>,
    /// In the order in which they were written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<Hook>,
    /// Secrets for the clusters of its stacks. The stacks' `bootstrap` blocks contain them too.
    #[serde(skip)]
    pub secrets: Vec<ClusterSecret>,
    #[serde(skip)]
    pub written: ContextDefinition,
}

/// A Secret that a stack's bootstrap creates in its cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterSecret {
    pub block: StageBlock,
    /// The keys of its data.
    pub keys: Vec<String>,
}

impl ClusterSecret {
    /// Whether both describe the same object of a cluster.
    pub fn is_same_object(&self, other: &StageBlock) -> bool {
        let place = |block: &StageBlock| block.attrs.get("namespace").cloned();
        self.block.name == other.name && place(&self.block) == place(other)
    }

    /// Whether both describe the object equally.
    pub fn is_like(&self, other: &Self) -> bool {
        self.block.attrs == other.block.attrs
    }

    /// `flux-system/sops-age`
    pub fn title(&self) -> String {
        match self.block.attrs.get("namespace") {
            Some(Input::Known(Value::String(namespace))) => {
                format!("{namespace}/{}", self.block.name)
            }
            Some(Input::Known(_) | Input::Expression(_)) | None => self.block.name.clone(),
        }
    }

    /// The sources of its values: references, never values.
    pub fn references(&self) -> Vec<&str> {
        let needed = self.block.attrs.values().filter_map(|input| match input {
            Input::Known(_) => None,
            Input::Expression(expression) => Some(&expression.needs.secrets),
        });
        needed.flatten().map(String::as_str).collect()
    }
}

/// The cluster secrets of contexts, lowest precedence first. For each object, the one with the highest precedence.
pub fn cluster_secrets<'a>(contexts: &[&'a Context]) -> Vec<(&'a Context, &'a ClusterSecret)> {
    let mut secrets: Vec<(&Context, &ClusterSecret)> = Vec::new();
    for context in contexts.iter().copied() {
        for secret in &context.secrets {
            secrets.retain(|(_, weaker)| !weaker.is_same_object(&secret.block));
            secrets.push((context, secret));
        }
    }
    secrets
}

/// Where a context is defined and how it was attached. Does not affect its meaning.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContextDefinition {
    pub at: Location,
    pub pass_env_at: Location,
    /// Its selectors.
    pub autoattach: Vec<String>,
    /// For each stack that has it, what attached it: a selector, or the stack's `contexts`.
    pub attached: BTreeMap<StackName, Vec<String>>,
    /// The location of each entry.
    pub entries: BTreeMap<(ContextEntryKind, String), Location>,
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContextEntryKind {
    Env,
    Vars,
    Files,
}

impl ContextEntryKind {
    pub const ALL: [Self; 3] = [Self::Env, Self::Vars, Self::Files];

    /// The keyword in the project file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Env => "env",
            Self::Vars => "vars",
            Self::Files => "files",
        }
    }
}

impl Context {
    pub fn entries(&self, kind: ContextEntryKind) -> &BTreeMap<String, Input> {
        match kind {
            ContextEntryKind::Env => &self.env,
            ContextEntryKind::Vars => &self.vars,
            ContextEntryKind::Files => &self.files,
        }
    }

    pub fn entry_at(&self, kind: ContextEntryKind, name: &str) -> Location {
        let at = self.written.entries.get(&(kind, name.to_owned()));
        at.cloned().unwrap_or_default()
    }

    /// Every value in it.
    pub fn inputs(&self) -> impl Iterator<Item = &Input> {
        let entries = ContextEntryKind::ALL.into_iter();
        let entries = entries.flat_map(|kind| self.entries(kind).values());
        entries.chain(self.hooks.iter().flat_map(Hook::inputs))
    }

    /// The values that a module with these variables needs. Undeclared variables have no effect on it.
    pub fn inputs_for<'a, T>(
        &'a self,
        variables: &'a BTreeMap<String, T>,
    ) -> impl Iterator<Item = &'a Input> {
        let vars = self.vars.iter();
        let vars = vars.filter(|(name, _)| variables.contains_key(*name));
        let entries = self.env.values().chain(vars.map(|(_, input)| input));
        let hooks = self.hooks.iter().flat_map(Hook::inputs);
        entries.chain(self.files.values()).chain(hooks)
    }

    pub fn inputs_mut(&mut self) -> impl Iterator<Item = &mut Input> {
        let entries = [&mut self.env, &mut self.vars, &mut self.files].into_iter();
        let entries = entries.flat_map(BTreeMap::values_mut);
        entries.chain(self.hooks.iter_mut().flat_map(Hook::inputs_mut))
    }

    /// A copy without locations.
    #[must_use]
    pub fn without_places(&self) -> Self {
        let mut context = self.clone();
        context.written = ContextDefinition::default();
        // Stacks contain them.
        context.secrets.clear();
        for hook in &mut context.hooks {
            hook.at = Location::default();
        }
        context
    }
}

/// Why contexts must not set this variable, and what to do instead.
pub fn refused_variable(name: &str) -> Option<(&'static str, &'static str)> {
    match name {
        "TF_DATA_DIR" => Some((
            "where the engine keeps its own files is terrane's to decide",
            "leave it out: each stack has a directory of its own",
        )),
        "TF_WORKSPACE" => Some((
            "a stack has one state, and no workspaces",
            "name the state by `state` in the stack's block",
        )),
        _ if name == "TF_CLI_ARGS" || name.starts_with("TF_CLI_ARGS_") => Some((
            "it would change the calls that plans and applies are made of",
            "`parallelism`, `timeout` and `var_files` are set in the project file",
        )),
        _ => None,
    }
}

/// The variables with which the engine finds terrane's state service.
pub const STATE_VARIABLES: [&str; 5] = [
    "TF_HTTP_ADDRESS",
    "TF_HTTP_LOCK_ADDRESS",
    "TF_HTTP_PASSWORD",
    "TF_HTTP_UNLOCK_ADDRESS",
    "TF_HTTP_USERNAME",
];

/// A program that runs before or after a stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hook {
    pub when: HookTiming,
    pub stage: HookStage,
    /// Program and arguments.
    pub run: Input,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Input>,
    pub timeout: Option<Duration>,
    #[serde(skip)]
    pub at: Location,
}

impl Hook {
    fn inputs(&self) -> impl Iterator<Item = &Input> {
        std::iter::once(&self.run).chain(self.env.values())
    }

    fn inputs_mut(&mut self) -> impl Iterator<Item = &mut Input> {
        std::iter::once(&mut self.run).chain(self.env.values_mut())
    }
}

/// `before "plan"`.
impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.when.word(), self.stage.word())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HookTiming {
    Before,
    After,
}

impl HookTiming {
    pub(crate) const WORDS: &'static [&'static str] = &["before", "after"];

    pub fn word(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        [Self::Before, Self::After]
            .into_iter()
            .find(|when| when.word() == word)
    }
}

/// A stage that can have hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HookStage {
    Init,
    Plan,
    Apply,
    Publish,
    Bootstrap,
    Verify,
}

impl HookStage {
    pub const ALL: [Self; 6] = [
        Self::Init,
        Self::Plan,
        Self::Apply,
        Self::Publish,
        Self::Bootstrap,
        Self::Verify,
    ];
    pub(crate) const WORDS: &'static [&'static str] =
        &["init", "plan", "apply", "publish", "bootstrap", "verify"];

    pub fn word(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Plan => "plan",
            Self::Apply => "apply",
            Self::Publish => "publish",
            Self::Bootstrap => "bootstrap",
            Self::Verify => "verify",
        }
    }

    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.word() == word)
    }

    /// The stage of a run that it belongs to.
    pub fn of_run(self) -> Stage {
        match self {
            Self::Init => Stage::Preparing,
            Self::Plan => Stage::Planning,
            Self::Apply => Stage::Applying,
            Self::Publish => Stage::Publishing,
            Self::Bootstrap => Stage::Bootstrapping,
            Self::Verify => Stage::Verifying,
        }
    }

    pub fn around(stage: Stage) -> Self {
        match stage {
            Stage::Preparing => Self::Init,
            Stage::Planning => Self::Plan,
            Stage::Applying => Self::Apply,
            Stage::Publishing => Self::Publish,
            Stage::Bootstrapping => Self::Bootstrap,
            Stage::Verifying => Self::Verify,
        }
    }
}

/// The hooks of a stage in execution order: `before` with the lowest precedence first, `after` in reverse.
pub fn hooks_around<'a>(
    contexts: &[&'a Context],
    when: HookTiming,
    stage: HookStage,
) -> Vec<(&'a Context, &'a Hook)> {
    let all = contexts
        .iter()
        .copied()
        .flat_map(|context| context.hooks.iter().map(move |hook| (context, hook)));
    let mut hooks: Vec<_> = all
        .filter(|(_, hook)| hook.when == when && hook.stage == stage)
        .collect();
    match when {
        HookTiming::Before => hooks,
        HookTiming::After => {
            hooks.reverse();
            hooks
        }
    }
}

/// Binds `stack.name`, `stack.state` and `target.name` in an input of a context or a backend for one stack.
#[must_use]
pub fn for_stack(input: &Input, stack: &Stack) -> Input {
    let mut bound = input.clone();
    if let Input::Expression(expression) = &mut bound {
        let names = json!({ "name": stack.name.as_str(), "state": stack.state });
        expression.names.insert("stack".to_owned(), names);
        expression
            .names
            .insert("target".to_owned(), json!({ "name": stack.target }));
    }
    bound
}

/// The contexts of a stack, lowest precedence first, with their values for this stack.
pub fn contexts_of(project: &Project, stack: &Stack) -> Vec<Context> {
    let contexts = stack.contexts.iter();
    let mut contexts: Vec<Context> = contexts
        .filter_map(|context| project.contexts.get(context).cloned())
        .collect();
    for value in contexts.iter_mut().flat_map(Context::inputs_mut) {
        *value = for_stack(value, stack);
    }
    contexts
}
