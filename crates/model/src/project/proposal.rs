//! Generates the project file that `terrane init` proposes for the root modules it found. People review and correct it.
//! Certain facts are code, guesses are comments.
//!
//! Not here: reading modules (`module`), reading and writing files (`control`).

mod edges;
mod find;
mod names;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::project::engine::Flavor;
use crate::project::module::remote_states::inputs_instead;
use edges::Edges;
pub use find::{Survey, find};

/// The input of a proposal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProjectProposal {
    /// The project's name; converted to a valid one if necessary.
    pub name: String,
    /// A new id.
    pub id: String,
    pub flavor: Flavor,
    /// Such as `~> 1.11`.
    pub constraint: Option<String>,
    pub found: Vec<RootModule>,
}

/// A root module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RootModule {
    /// Relative to the project's root; `""` is the root.
    pub dir: String,
    /// The type of its `backend` block, or `cloud`.
    pub backend: Option<String>,
    /// The source text of that block's settings.
    pub backend_text: String,
    pub remote_states: Vec<FoundRemoteState>,
    /// Variables, and whether they already have a value: a default, or one from a file that the engine loads
    /// automatically.
    pub variables: BTreeMap<String, bool>,
    pub outputs: BTreeSet<String>,
}

/// A `data "terraform_remote_state"` block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundRemoteState {
    pub name: String,
    /// The source text of its settings.
    pub config: String,
    /// The outputs that the module uses.
    pub outputs: BTreeSet<String>,
}

/// A stack and an upstream that it seems to need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProposedEdge {
    pub stack: String,
    pub upstream: String,
    pub why: EdgeReason,
}

/// Why an edge is proposed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EdgeReason {
    /// It reads the upstream's state. Written as code.
    ReadsState { remote: String },
    /// A remote state has the name of the upstream. Written as a comment.
    SeemsToReadState { remote: String },
    /// An output of the upstream has the name of a variable. Written as a comment.
    SameName { variable: String },
}

/// The names of the stacks, by directory, and the edges that [`render`] proposes.
pub fn stacks_and_edges(
    proposal: &ProjectProposal,
) -> (BTreeMap<String, String>, Vec<ProposedEdge>) {
    let (found, names) = named(proposal);
    let edges = Edges::new(&found, &names);
    let mut proposed = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let mut add = |upstream: usize, why| {
            proposed.push(ProposedEdge {
                stack: name.clone(),
                upstream: names[upstream].clone(),
                why,
            });
        };
        for (up, remote) in edges.read_by(at) {
            let remote = remote.to_owned();
            add(up, EdgeReason::ReadsState { remote });
        }
        for (up, remote) in edges.guessed_by(at) {
            let remote = remote.to_owned();
            add(up, EdgeReason::SeemsToReadState { remote });
        }
        for (variable, up) in edges.fed(at) {
            let variable = variable.to_owned();
            add(up, EdgeReason::SameName { variable });
        }
    }
    let dirs = found.iter().map(|module| module.dir.clone());
    (dirs.zip(names).collect(), proposed)
}

/// The number of data sources that read a state which terrane will store, so that they will not find it.
pub fn states_to_hand_over(proposal: &ProjectProposal) -> usize {
    let (found, names) = named(proposal);
    let edges = Edges::new(&found, &names);
    let read = (0..found.len()).flat_map(|at| edges.read_by(at));
    read.filter(|(up, _)| own_backend(found[*up]).is_none())
        .count()
}

/// The modules sorted by directory, with their names.
fn named(proposal: &ProjectProposal) -> (Vec<&RootModule>, Vec<String>) {
    let mut found: Vec<&RootModule> = proposal.found.iter().collect();
    found.sort_by(|one, other| one.dir.cmp(&other.dir));
    let names = names::stacks(&found, &names::project(&proposal.name));
    (found, names)
}

const HEAD: &str = "\
# Proposed by `terrane init`. Read it, correct it, then run `terrane validate`.
";

const EXAMPLE: &str = "
# No root module was found. A stack is a directory of engine files with a state of its own:
#
# stack \"network\" {
#   path   = \"infra/network\"
#   target = \"local\"
#   layer  = \"main\"
# }
";

/// The text of `terrane.hcl`.
pub fn render(proposal: &ProjectProposal) -> String {
    let (found, names) = named(proposal);
    let project = names::project(&proposal.name);
    let edges = Edges::new(&found, &names);
    let mut out = String::from(HEAD);
    let _ = writeln!(out, "\nproject {} {{", quoted(&project));
    let _ = writeln!(
        out,
        "  id = {} # ties clones and worktrees to one home: keep it",
        quoted(&proposal.id)
    );
    match &proposal.constraint {
        Some(constraint) => {
            let version = quoted(constraint);
            let _ = writeln!(
                out,
                "  engine \"{}\" {{ version = {version} }}",
                proposal.flavor
            );
        }
        None => {
            let _ = writeln!(out, "  engine \"{}\" {{}}", proposal.flavor);
        }
    }
    out.push_str("}\n\nlayer \"main\" { order = 0 } # more layers keep lower stacks from needing higher ones\n\n");
    targets(&mut out, &found);
    if found.is_empty() {
        out.push_str(EXAMPLE);
    }
    for at in 0..found.len() {
        out.push('\n');
        stack(&mut out, at, &found, &names, &edges);
    }
    out
}

/// One target for states in terrane, and one for each backend that modules declare. Moving states away from their
/// backend would look as if nothing had been applied.
fn targets(out: &mut String, found: &[&RootModule]) {
    let backends: BTreeSet<&str> = found
        .iter()
        .filter_map(|module| own_backend(module))
        .collect();
    if found.is_empty() || found.iter().any(|module| own_backend(module).is_none()) {
        out.push_str("target \"local\" { writers = [\"anyone\"] } # terrane keeps the states\n");
    }
    for kind in backends {
        let name = names::word(kind, "backend");
        if !out.ends_with("\n\n") {
            out.push('\n');
        }
        let _ = writeln!(out, "target {} {{", quoted(&name));
        out.push_str("  writers = [\"anyone\"]\n");
        let _ = writeln!(
            out,
            "  backend {} {{}} # its settings stay in the modules; what they lack goes here",
            quoted(kind)
        );
        out.push_str("}\n");
    }
}

/// The backend in which a module's states stay. A file beside the code does not count.
fn own_backend(module: &RootModule) -> Option<&str> {
    module
        .backend
        .as_deref()
        .filter(|kind| !matches!(*kind, "local" | "cloud"))
}

fn stack(out: &mut String, at: usize, found: &[&RootModule], names: &[String], edges: &Edges) {
    let (module, name) = (found[at], &names[at]);
    let _ = writeln!(out, "stack {} {{", quoted(name));
    let path = if module.dir.is_empty() {
        "."
    } else {
        &module.dir
    };
    let target =
        own_backend(module).map_or_else(|| "local".to_owned(), |kind| names::word(kind, "backend"));
    let _ = writeln!(out, "  path   = {}", quoted(path));
    let _ = writeln!(out, "  target = {}", quoted(&target));
    let _ = writeln!(out, "  layer  = \"main\"");
    let after: Vec<String> = edges
        .read_by(at)
        .map(|(up, _)| format!("stack.{}", names[up]))
        .collect();
    if !after.is_empty() {
        let why: Vec<String> = edges
            .read_by(at)
            .map(|(_, remote)| format!("`data.terraform_remote_state.{remote}`"))
            .collect();
        let reads = if why.len() == 1 {
            "reads its state"
        } else {
            "read their states"
        };
        let _ = writeln!(
            out,
            "  after  = [{}] # {} {reads}",
            after.join(", "),
            why.join(", ")
        );
    }
    for (up, remote) in edges.read_by(at) {
        if own_backend(found[up]).is_none() {
            instead_of_state(out, module, &names[up], remote);
        }
    }
    for (up, remote) in edges.guessed_by(at) {
        let _ = writeln!(
            out,
            "  # proposed: after = [stack.{}], for `data.terraform_remote_state.{remote}` seems to read it",
            names[up]
        );
    }
    inputs(out, at, names, edges);
    let unset: Vec<String> = module
        .variables
        .iter()
        .filter(|(variable, has_default)| !**has_default && !edges.feeds(at, variable))
        .map(|(variable, _)| format!("`{variable}`"))
        .collect();
    if !unset.is_empty() {
        let _ = writeln!(
            out,
            "  # requires a value for {}: in `inputs`, `var_files`, `*.auto.tfvars` or a context",
            unset.join(", ")
        );
    }
    match module.backend.as_deref() {
        Some("local") => {
            out.push_str("  # its state is a file so far: bring it over before the first apply\n");
        }
        Some("cloud") => out.push_str(
            "  # its `cloud` block is not used here: bring its state over before the first apply\n",
        ),
        _ => {}
    }
    out.push_str("}\n");
}

/// What replaces the remote state in a module that reads a state which terrane will store.
fn instead_of_state(out: &mut String, module: &RootModule, upstream: &str, remote: &str) {
    let read = module.remote_states.iter().find(|it| it.name == remote);
    let outputs = read.map(|read| read.outputs.clone()).unwrap_or_default();
    let is_variable = |name: &str| module.variables.contains_key(name);
    let inputs = inputs_instead(upstream, remote, &outputs, is_variable);
    let _ = writeln!(
        out,
        "  # terrane keeps the state of `{upstream}`, so `data.terraform_remote_state.{remote}` will find none:\n  \
         # declare a variable for each output that it takes, and hand it over instead:\n  \
         # inputs = {inputs}"
    );
}

/// Variables with the name of an output of exactly one other module.
fn inputs(out: &mut String, at: usize, names: &[String], edges: &Edges) {
    let fed: Vec<String> = edges
        .fed(at)
        .map(|(variable, up)| format!("{variable} = stack.{}.output.{variable}", names[up]))
        .collect();
    match fed.as_slice() {
        [] => {}
        [one] => {
            let _ = writeln!(out, "  # proposed: inputs = {{ {one} }}");
        }
        several => {
            out.push_str("  # proposed: inputs = {\n");
            let width = several
                .iter()
                .filter_map(|line| line.find(" = "))
                .max()
                .unwrap_or(0);
            for line in several {
                let (variable, value) = line.split_once(" = ").unwrap_or((line, ""));
                let _ = writeln!(out, "  #   {variable:<width$} = {value}");
            }
            out.push_str("  # }\n");
        }
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            // `${` and `%{` start a template.
            '{' if out.ends_with(['$', '%']) => {
                let sign = if out.ends_with('$') { '$' } else { '%' };
                out.push(sign);
                out.push('{');
            }
            other => out.push(other),
        }
    }
    out.push('"');
    out
}
