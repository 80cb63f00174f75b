//! Selectors: the arguments with which people select stacks.
//!
//! | word | stacks |
//! |---|---|
//! | `network`, `env-*` | by name or glob |
//! | `target:azure`, `layer:platforms`, `label:prod` | of that target, layer, label |
//! | `changed:main` | whose source differs from where the branch left `main` |
//! | `changed:applied` | whose source differs from what was last applied |
//! | `+X`, `X+`, `+X+` | X with everything upstream, downstream, both |
//! | `!X` | not X |
//! | `X&Y` | in X and in Y |
//!
//! Several words form a union. Words that only exclude are subtracted from it, or from all stacks if there are no
//! others.
//!
//! Not here: what has changed (`changed`, and the `drivers` that detect it).

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use globset::GlobBuilder;

use crate::base::error::{ErrorKind, Explain, NextStep, advice, command};
use crate::base::ids::StackName;
use crate::graph::Graph;
use crate::hcl::paths;
use crate::hcl::suggest::nearest;
use crate::project::Project;

/// What `changed:…` compares with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangedRef {
    /// A Git revision.
    Git(String),
    /// The source with which each stack was last applied.
    Applied,
}

/// Parsed selectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// The stacks of a directory, relative to the project's root; `""` is all of them.
    Here(String),
    Words(Vec<SelectorTerm>),
}

/// One argument: factors joined by `&`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectorTerm(Vec<Factor>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Factor {
    negated: bool,
    upstream: bool,
    downstream: bool,
    atom: Atom,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Atom {
    Name(String),
    Glob(String),
    Target(String),
    Layer(String),
    Label(String),
    Changed(ChangedRef),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    #[error("`{word}` is not a valid selector: {why}")]
    Malformed { word: String, why: &'static str },
    #[error("`{kind}:` is not a kind of selector")]
    UnknownKind { kind: String },
    #[error("there is no {noun} `{name}`")]
    Unknown {
        noun: &'static str,
        name: String,
        nearest: Option<String>,
    },
    #[error("`{path}` is a path, not the name of a stack")]
    Path {
        path: String,
        stacks: Vec<StackName>,
    },
    #[error("no stack matches `{glob}`")]
    NoMatch { glob: String },
    #[error("`{glob}` is not a glob: {why}")]
    InvalidGlob { glob: String, why: String },
    #[error("there is no stack in `{dir}`")]
    NothingHere { dir: String },
    #[error("this project has no stacks")]
    NoStacks,
}

impl Explain for SelectorError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Usage
    }

    fn next_steps(&self) -> Vec<NextStep> {
        vec![match self {
            Self::Malformed { .. } | Self::InvalidGlob { .. } => return Vec::new(),
            Self::UnknownKind { .. } => {
                advice("there are `target:`, `layer:`, `label:` and `changed:`")
            }
            Self::Unknown {
                nearest: Some(name),
                ..
            } => advice(format!("did you mean `{name}`?")),
            Self::Unknown { nearest: None, .. } | Self::NoMatch { .. } => {
                command("graph", "lists the stacks")
            }
            Self::Path { stacks, .. } => {
                const SHOWN: usize = 5;
                let names = stacks.iter().map(|name| format!("`{name}`"));
                let names: Vec<String> = names.take(SHOWN).collect();
                let names = names.join(", ");
                advice(match stacks.len() {
                    1 => format!("the stack there is {names}"),
                    all if all > SHOWN => {
                        format!("the stacks there are {names} and {} more", all - SHOWN)
                    }
                    _ => format!("the stacks there are {names}"),
                })
            }
            Self::NothingHere { .. } => {
                advice("name the stacks, or run the command in the project's root for all of them")
            }
            Self::NoStacks => advice(
                "add a `stack` or a `discover` block; only `terrane render` works without one",
            ),
        }]
    }
}

/// Parses selectors from a command line. No selector at all means every stack.
pub fn parse(arguments: &[String]) -> Result<Selection, SelectorError> {
    if arguments.is_empty() {
        return Ok(Selection::Here(String::new()));
    }
    let words = arguments
        .iter()
        .map(|argument| SelectorTerm::parse(argument));
    Ok(Selection::Words(words.collect::<Result<_, _>>()?))
}

impl Selection {
    /// The meaning of no selector: the stacks of the current directory (relative to the project's root), or all stacks
    /// at the root.
    pub fn here(dir: impl Into<String>) -> Self {
        Self::Here(dir.into())
    }

    /// The comparisons that are needed before this can be resolved.
    pub fn refs(&self) -> BTreeSet<ChangedRef> {
        let Self::Words(words) = self else {
            return BTreeSet::new();
        };
        let factors = words.iter().flat_map(|word| &word.0);
        factors
            .filter_map(|factor| match &factor.atom {
                Atom::Changed(to) => Some(to.clone()),
                Atom::Name(_)
                | Atom::Glob(_)
                | Atom::Target(_)
                | Atom::Layer(_)
                | Atom::Label(_) => None,
            })
            .collect()
    }

    /// The selected stacks. `changed` is called for each of [`Selection::refs`].
    pub fn resolve(
        &self,
        graph: &Graph,
        project: &Project,
        changed: &dyn Fn(&ChangedRef) -> BTreeSet<StackName>,
    ) -> Result<BTreeSet<StackName>, SelectorError> {
        let words = match self {
            Self::Here(dir) => return here(project, dir),
            Self::Words(words) => words,
        };
        let context = Context {
            graph,
            project,
            changed,
        };
        let (negative, positive): (Vec<&SelectorTerm>, Vec<&SelectorTerm>) =
            words.iter().partition(|word| word.says_only_no());
        let mut selected = if positive.is_empty() {
            graph.names()
        } else {
            BTreeSet::new()
        };
        for word in positive {
            selected.append(&mut context.intersection(&word.0)?);
        }
        for factor in negative.iter().flat_map(|word| &word.0) {
            for stack in context.named(factor)? {
                selected.remove(&stack);
            }
        }
        Ok(selected)
    }
}

impl SelectorTerm {
    fn parse(argument: &str) -> Result<Self, SelectorError> {
        let factors = argument.split('&').map(|part| {
            Factor::parse(part.trim()).map_err(|why| match why {
                FactorError::Malformed(why) => SelectorError::Malformed {
                    word: argument.to_owned(),
                    why,
                },
                FactorError::UnknownKind(kind) => SelectorError::UnknownKind { kind },
            })
        });
        factors.collect::<Result<_, _>>().map(Self)
    }

    fn says_only_no(&self) -> bool {
        self.0.iter().all(|factor| factor.negated)
    }
}

enum FactorError {
    Malformed(&'static str),
    UnknownKind(String),
}

impl Factor {
    fn parse(text: &str) -> Result<Self, FactorError> {
        let (negated, text) = strip(text, |t| t.strip_prefix('!'));
        let (upstream, text) = strip(text.trim(), |t| t.strip_prefix('+'));
        let (downstream, text) = strip(text, |t| t.strip_suffix('+'));
        if text.is_empty() {
            return Err(FactorError::Malformed("there is no name in it"));
        }
        if text.starts_with(['!', '+']) {
            return Err(FactorError::Malformed(
                "write `!` first, then at most one `+` on each side of the name",
            ));
        }
        let atom = match text.split_once(':') {
            Some((_, "")) => return Err(FactorError::Malformed("nothing follows the colon")),
            Some(("target", name)) => Atom::Target(name.to_owned()),
            Some(("layer", name)) => Atom::Layer(name.to_owned()),
            Some(("label", name)) => Atom::Label(name.to_owned()),
            Some(("changed", "applied")) => Atom::Changed(ChangedRef::Applied),
            Some(("changed", revision)) => Atom::Changed(ChangedRef::Git(revision.to_owned())),
            Some((kind, _)) => return Err(FactorError::UnknownKind(kind.to_owned())),
            None if text.contains(['*', '?', '[', '{']) => Atom::Glob(text.to_owned()),
            None => Atom::Name(text.to_owned()),
        };
        Ok(Self {
            negated,
            upstream,
            downstream,
            atom,
        })
    }
}

fn strip(text: &str, with: impl Fn(&str) -> Option<&str>) -> (bool, &str) {
    with(text).map_or((false, text), |rest| (true, rest))
}

struct Context<'a> {
    graph: &'a Graph,
    project: &'a Project,
    changed: &'a dyn Fn(&ChangedRef) -> BTreeSet<StackName>,
}

impl Context<'_> {
    fn intersection(&self, factors: &[Factor]) -> Result<BTreeSet<StackName>, SelectorError> {
        let mut common = self.graph.names();
        for factor in factors {
            let named = self.named(factor)?;
            common.retain(|stack| named.contains(stack) != factor.negated);
        }
        Ok(common)
    }

    /// The stacks that a factor names, whether it includes or excludes them.
    fn named(&self, factor: &Factor) -> Result<BTreeSet<StackName>, SelectorError> {
        let named = self.atom(&factor.atom)?;
        let mut all = named.clone();
        for stack in &named {
            if factor.upstream {
                all.append(&mut self.graph.upstream_closure(stack));
            }
            if factor.downstream {
                all.append(&mut self.graph.downstream_closure(stack));
            }
        }
        Ok(all)
    }

    fn atom(&self, atom: &Atom) -> Result<BTreeSet<StackName>, SelectorError> {
        let project = self.project;
        let stacks = project.stacks.values();
        Ok(match atom {
            Atom::Name(name) => {
                let known = || project.stacks.keys().map(StackName::as_str);
                let stack = project.stacks.keys().find(|stack| stack.as_str() == name);
                let stack = stack.ok_or_else(|| {
                    at_path(project, "", name).unwrap_or_else(|| unknown("stack", name, known()))
                })?;
                BTreeSet::from([stack.clone()])
            }
            Atom::Glob(glob) => self.glob(glob)?,
            Atom::Target(name) => {
                if !project.targets.contains_key(name) {
                    return Err(unknown(
                        "target",
                        name,
                        project.targets.keys().map(String::as_str),
                    ));
                }
                let of_it = stacks.filter(|stack| stack.target == *name);
                of_it.map(|stack| stack.name.clone()).collect()
            }
            Atom::Layer(name) => {
                if !project.layers.contains_key(name) {
                    return Err(unknown(
                        "layer",
                        name,
                        project.layers.keys().map(String::as_str),
                    ));
                }
                let of_it = stacks.filter(|stack| stack.layer == *name);
                of_it.map(|stack| stack.name.clone()).collect()
            }
            Atom::Label(name) => {
                let known = || project.stacks.values().flat_map(|stack| &stack.labels);
                let of_it = stacks.filter(|stack| stack.labels.contains(name));
                let named: BTreeSet<StackName> = of_it.map(|stack| stack.name.clone()).collect();
                if named.is_empty() {
                    return Err(unknown("label", name, known().map(String::as_str)));
                }
                named
            }
            Atom::Changed(to) => {
                let changed = (self.changed)(to);
                changed
                    .into_iter()
                    .filter(|stack| self.graph.contains(stack))
                    .collect()
            }
        })
    }

    fn glob(&self, glob: &str) -> Result<BTreeSet<StackName>, SelectorError> {
        let matcher = GlobBuilder::new(glob)
            .build()
            .map_err(|err| SelectorError::InvalidGlob {
                glob: glob.to_owned(),
                why: err.kind().to_string(),
            })?
            .compile_matcher();
        let names = self.project.stacks.keys();
        let matching = names.filter(|stack| matcher.is_match(stack.as_str()));
        let named: BTreeSet<StackName> = matching.cloned().collect();
        if named.is_empty() {
            return Err(SelectorError::NoMatch {
                glob: glob.to_owned(),
            });
        }
        Ok(named)
    }
}

/// The error for a word that is not a stack but a path of the source, relative to a directory. Shells complete paths,
/// so people enter them. None if there is no stack at that path.
pub fn at_path(project: &Project, dir: &str, word: &str) -> Option<SelectorError> {
    let path = paths::join(dir, word).ok()?;
    let stacks = match here(project, &path) {
        // A word without `/` may be a mistyped name, so only stacks below that path count.
        Ok(stacks) if word.contains('/') => stacks,
        Ok(stacks) if !path.is_empty() => {
            let below = |stack: &StackName| lies_in(&project.stacks[stack].path, &path);
            stacks.into_iter().filter(below).collect()
        }
        _ => return None,
    };
    (!stacks.is_empty()).then(|| SelectorError::Path {
        path: word.to_owned(),
        stacks: stacks.into_iter().collect(),
    })
}

/// Stacks at or below a directory, or else those of the root module that contains the directory.
fn here(project: &Project, dir: &str) -> Result<BTreeSet<StackName>, SelectorError> {
    let dir = dir.trim_matches('/');
    if project.stacks.is_empty() {
        return Err(SelectorError::NoStacks);
    }
    let stacks = || project.stacks.values();
    let below = stacks().filter(|stack| lies_in(&stack.path, dir));
    let below: BTreeSet<StackName> = below.map(|stack| stack.name.clone()).collect();
    if !below.is_empty() {
        return Ok(below);
    }
    let around = stacks().filter(|stack| lies_in(dir, &stack.path));
    let innermost = around
        .map(|stack| stack.path.as_str())
        .max_by_key(|path| path.len());
    let innermost = innermost.ok_or_else(|| SelectorError::NothingHere {
        dir: dir.to_owned(),
    })?;
    let of_it = stacks().filter(|stack| stack.path == innermost);
    Ok(of_it.map(|stack| stack.name.clone()).collect())
}

fn lies_in(path: &str, dir: &str) -> bool {
    dir.is_empty()
        || path
            .strip_prefix(dir)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn unknown<'a>(
    noun: &'static str,
    name: &str,
    known: impl Iterator<Item = &'a str>,
) -> SelectorError {
    SelectorError::Unknown {
        noun,
        name: name.to_owned(),
        nearest: nearest(name, known).map(str::to_owned),
    }
}
