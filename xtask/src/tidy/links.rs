//! The rule about pages: a link to a file of the repository must resolve.
//!
//! Not here: links to the network, and anchors inside a page.

use super::{SourceTree, Violation};

pub(super) fn links_lead_somewhere(tree: &SourceTree) -> Vec<Violation> {
    let mut problems = Vec::new();
    for file in tree.files.iter().filter(|file| file.has_extension("md")) {
        let dir = file.path.rsplit_once('/').map_or("", |(dir, _)| dir);
        let mut fenced = false;
        for (index, line) in file.text.lines().enumerate() {
            fenced ^= line.trim_start().starts_with("```");
            if fenced {
                continue;
            }
            for link in links(line).filter(|link| !link.contains("://") && !link.starts_with('#')) {
                let target = link.split('#').next().unwrap_or(link);
                let lost = resolve(dir, target).is_none_or(|path| !holds(tree, &path));
                if lost {
                    problems.push(Violation::at(
                        &file.path,
                        index + 1,
                        format!("the link to `{link}` leads nowhere"),
                    ));
                }
            }
        }
    }
    problems
}

/// The text in round brackets that directly follows square brackets.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')').map(|(link, _)| link))
}

/// The path from the root, or `None` if it would leave it.
fn resolve(dir: &str, link: &str) -> Option<String> {
    let mut parts: Vec<&str> = dir.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// A file, or a directory with a file in it.
fn holds(tree: &SourceTree, path: &str) -> bool {
    let inside = format!("{path}/");
    tree.files
        .iter()
        .any(|file| file.path == path || file.path.starts_with(&inside))
}
