//! Names in a `render` block that match nothing. A typo in `sensitive` would reveal a secret, one in `check` would miss
//! a mistake, and one in `when` would create an unwanted file.

use super::data::Node;
use super::schema::Schema;
use super::select::Select;
use super::{Render, checks::Check};
use crate::base::diagnostic::Finding;
use crate::hcl::suggest;

/// Paths of `sensitive`, `check` and `each` that are neither in the data nor in the schema.
pub fn unmatched(render: &Render, data: &Node, schema: Option<&Schema>) -> Vec<Finding> {
    let parsed = |text: &String| text.parse::<Select>().ok(); // invalid ones are reported when they are read
    let sensitive = render.sensitive.iter().filter_map(parsed);
    let lists = render.each.keys().filter_map(parsed);
    let of_check = |(index, check): (usize, &Check)| {
        let selects = [check.paths.clone(), check.of.clone()].concat();
        let part = format!("check.{index}");
        selects
            .into_iter()
            .map(move |select| (select, part.clone()))
    };
    let checked = render.checks.iter().enumerate().flat_map(of_check);
    let all = sensitive
        .map(|select| (select, "sensitive".to_owned()))
        .chain(checked)
        .chain(lists.map(|select| {
            let part = format!("each.{select}");
            (select, part)
        }));
    let mut findings: Vec<Finding> = Vec::new();
    for (select, part) in all {
        let attribute = part.split('.').next().unwrap_or(&part);
        if schema.is_some_and(|schema| schema.knows(&select)) {
            continue;
        }
        let Some(miss) = select.miss(data) else {
            continue;
        };
        let known = miss.known.iter().map(String::as_str);
        let hint = match suggest::nearest(&miss.key, known) {
            Some(word) => format!("did you mean `{word}`?"),
            None => {
                "what may be missing belongs into the schema, or into `defaults`, be it as `null`"
                    .to_owned()
            }
        };
        let message = format!("`{select}` of `{attribute}` is nowhere in the data");
        let finding = Finding::error("unknown-path", message)
            .at(render.place(&part), format!("there is no `{}`", miss.key))
            .hint(hint);
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }
    findings
}

/// The finding for a glob of `when` or `exclude` that matches none of `files`.
pub fn unmatched_glob(
    render: &Render,
    attribute: &str,
    glob: &str,
    files: &[&str],
    is_error: bool,
) -> Finding {
    let message = format!("`{glob}` of `{attribute}` is none of the files");
    let finding = if is_error {
        Finding::error("unknown-path", message)
    } else {
        Finding::warning("unknown-path", message)
    };
    let names = files.iter().map(|file| {
        let name = file.rsplit('/').next().unwrap_or(file);
        if glob.contains('/') { *file } else { name }
    });
    let part = match attribute {
        "when" => format!("when.{glob}"),
        _ => attribute.to_owned(),
    };
    let finding = finding.at(render.place(&part), "nothing is called so");
    match suggest::nearest(glob, names) {
        Some(word) => finding.hint(format!("did you mean `{word}`?")),
        None => finding,
    }
}
