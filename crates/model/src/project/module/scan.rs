//! Scans all expressions of a file for file reads, with literal or computed paths, and for constructs that break in a
//! snapshot.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use hcl_edit::Span;
use hcl_edit::expr::{Expression, FuncCall, Traversal, TraversalOperator};
use hcl_edit::structure::Body;
use hcl_edit::template::Element;
use hcl_edit::visit::{Visit, visit_func_call, visit_traversal};

use super::PathScope;
use crate::hcl::paths::{self, OutsideProject};

#[derive(Default)]
pub(super) struct Scan {
    dir: String,
    pub(super) files: BTreeMap<String, Range<usize>>,
    /// Reads with a computed path: the function, what is known of the path, and the position.
    pub(super) unknown: Vec<(String, PathScope, Range<usize>)>,
    /// Uses of `path.cwd` and `abspath()`, with their positions.
    pub(super) unstable: Vec<(&'static str, Range<usize>)>,
    /// `data.terraform_remote_state.NAME.outputs.KEY`: keys by name.
    pub(super) remote_outputs: BTreeMap<String, BTreeSet<String>>,
}

pub(super) fn scan(dir: &str, body: &Body) -> Scan {
    let mut scan = Scan {
        dir: dir.to_owned(),
        ..Scan::default()
    };
    scan.visit_body(body);
    scan
}

pub(super) const READERS: &[&str] = &[
    "file",
    "fileexists",
    "templatefile",
    "filebase64",
    "filemd5",
    "filesha1",
    "filesha256",
    "filesha512",
    "filebase64sha256",
    "filebase64sha512",
    "fileset",
];

impl Visit for Scan {
    fn visit_func_call(&mut self, call: &FuncCall) {
        let name = call.name.name.as_str();
        if name == "abspath" {
            let at = call.name.name.span().unwrap_or(0..0);
            self.unstable.push(("abspath()", at));
        }
        if READERS.contains(&name)
            && let Some(path) = call.args.get(0)
        {
            self.read(call, path);
        }
        visit_func_call(self, call);
    }

    fn visit_traversal(&mut self, traversal: &Traversal) {
        if let (Expression::Variable(root), Some(first)) =
            (&traversal.expr, traversal.operators.first())
            && root.as_str() == "path"
            && matches!(first.value(), TraversalOperator::GetAttr(name) if name.as_str() == "cwd")
        {
            let at = traversal.span().or_else(|| root.span()).unwrap_or(0..0);
            self.unstable.push(("path.cwd", at));
        }
        if let Some((name, output)) = remote_output(traversal) {
            let outputs = self.remote_outputs.entry(name.to_owned()).or_default();
            outputs.insert(output.to_owned());
        }
        visit_traversal(self, traversal);
    }
}

impl Scan {
    fn read(&mut self, call: &FuncCall, path: &Expression) {
        let name = call.name.name.as_str();
        let Some(path) = literal_path(path) else {
            let whereabouts = match literal_start(path) {
                Some(start) => match paths::join(&self.dir, &start) {
                    Ok(dir) => PathScope::Below(dir),
                    Err(OutsideProject::Absolute(_) | OutsideProject::Up(_)) => PathScope::Outside,
                },
                None => PathScope::Anywhere,
            };
            self.note_unknown(call, whereabouts);
            return;
        };
        let path = match (name, call.args.get(1).and_then(literal_path)) {
            ("fileset", Some(pattern)) => format!("{path}/{pattern}"),
            ("fileset", None) => format!("{path}/**"),
            _ => path,
        };
        match paths::join(&self.dir, &path) {
            Ok(path) => {
                let at = call.args.get(0).and_then(Span::span);
                self.files.entry(path).or_insert(at.unwrap_or(0..0));
            }
            Err(OutsideProject::Absolute(_)) => self.note_unknown(call, PathScope::Outside),
            // It is not in the snapshot; the engine reports that.
            Err(OutsideProject::Up(_)) => {}
        }
    }

    fn note_unknown(&mut self, call: &FuncCall, whereabouts: PathScope) {
        let name = call.name.name.as_str().to_owned();
        let at = call.name.name.span().unwrap_or(0..0);
        self.unknown.push((name, whereabouts, at));
    }
}

/// The name of a remote state and the output that is used.
fn remote_output(traversal: &Traversal) -> Option<(&str, &str)> {
    let Expression::Variable(root) = &traversal.expr else {
        return None;
    };
    let steps: Option<Vec<&str>> = traversal
        .operators
        .iter()
        .take(4)
        .map(|operator| match operator.value() {
            TraversalOperator::GetAttr(name) => Some(name.as_str()),
            TraversalOperator::Index(key) => key.as_str(),
            _ => None,
        })
        .collect();
    match (root.as_str(), steps?.as_slice()) {
        ("data", ["terraform_remote_state", name, "outputs", output]) => Some((name, output)),
        _ => None,
    }
}

/// The literal directory at the start of a computed path. A path with `..` after that may lead anywhere.
fn literal_start(expr: &Expression) -> Option<String> {
    let mut known = String::new();
    let mut is_open = false;
    for (at, element) in expr.as_string_template()?.iter().enumerate() {
        match element {
            Element::Literal(text) if is_open && text.contains("..") => return None,
            Element::Literal(text) if !is_open => known.push_str(text),
            Element::Interpolation(interpolation) if at == 0 => match &interpolation.expr {
                Expression::Traversal(traversal) if is_path_module(traversal) => known.push('.'),
                _ => return None,
            },
            Element::Literal(_) | Element::Interpolation(_) | Element::Directive(_) => {
                is_open = true;
            }
        }
    }
    let (dir, _) = known.rsplit_once('/')?;
    Some(dir.to_owned())
}

/// The text of a literal path. `${path.module}` at the start means the module's directory.
fn literal_path(expr: &Expression) -> Option<String> {
    if let Some(text) = expr.as_str() {
        return Some(text.to_owned());
    }
    if let Expression::Traversal(traversal) = expr {
        return is_path_module(traversal).then(|| ".".to_owned());
    }
    let template = expr.as_string_template()?;
    let mut out = String::new();
    for (at, element) in template.iter().enumerate() {
        match element {
            Element::Literal(text) => out.push_str(text),
            Element::Interpolation(interpolation) if at == 0 => match &interpolation.expr {
                Expression::Traversal(traversal) if is_path_module(traversal) => out.push('.'),
                _ => return None,
            },
            _ => return None,
        }
    }
    Some(out)
}

fn is_path_module(traversal: &Traversal) -> bool {
    let root = matches!(&traversal.expr, Expression::Variable(name) if name.as_str() == "path");
    let part = traversal.operators.first().is_some_and(|operator| {
        matches!(operator.value(), TraversalOperator::GetAttr(name) if matches!(name.as_str(), "module" | "root"))
    });
    root && part && traversal.operators.len() == 1
}
