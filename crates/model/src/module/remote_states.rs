//! Whose state a `terraform_remote_state` reads, as far as its settings say, and what stands in its place where terrane
//! keeps that state.

use std::collections::BTreeSet;

use crate::config::paths;

/// A root module, and the settings of its own backend as written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keeper<'a> {
    pub(crate) dir: &'a str,
    pub(crate) backend_text: &'a str,
}

/// The one other module whose backend has all of these settings, one of them for itself, or whose state file they name.
pub(crate) fn state_of(keepers: &[Keeper<'_>], reader: usize, config: &str) -> Option<usize> {
    let named = literals(config);
    let dir = keepers[reader].dir;
    let others = || (0..keepers.len()).filter(|&up| up != reader);
    let has = |up: usize, literal: &str| literals(keepers[up].backend_text).contains(literal);
    let by_setting = named.iter().filter_map(|literal| {
        // A bucket is everybody's; a key is one's own.
        let is_mine = has(reader, literal);
        let up = only(others().filter(|&up| has(up, literal))).filter(|_| !is_mine)?;
        named.iter().all(|other| has(up, other)).then_some(up)
    });
    let files = named.iter().filter(|literal| literal.ends_with(".tfstate"));
    let by_file = files.filter_map(|literal| {
        let file = paths::join(dir, literal).ok()?;
        others().find(|&up| holds(keepers[up], &file))
    });
    let found: BTreeSet<usize> = by_setting.chain(by_file).collect();
    only(found.into_iter())
}

/// `{ id = stack.net.output.id }`: the outputs that are used, each for a variable that is not there yet.
pub(crate) fn inputs_instead(
    stack: &str,
    remote: &str,
    outputs: &BTreeSet<String>,
    is_variable: impl Fn(&str) -> bool,
) -> String {
    let values: Vec<String> = outputs
        .iter()
        .map(|output| {
            let input = if is_variable(output) {
                format!("{remote}_{output}")
            } else {
                output.clone()
            };
            format!("{input} = stack.{stack}.output.{output}")
        })
        .collect();
    if values.is_empty() {
        return format!("{{ KEY = stack.{stack}.output.KEY }}");
    }
    format!("{{ {} }}", values.join(", "))
}

/// Whether a file lies beside the module, or where its backend says.
fn holds(keeper: Keeper<'_>, file: &str) -> bool {
    let dir = file.rsplit_once('/').map_or("", |(dir, _)| dir);
    let own = literals(keeper.backend_text);
    let is_own = |literal: &String| {
        paths::join(keeper.dir, literal).is_ok_and(|own| own == file && literal.contains('.'))
    };
    dir == keeper.dir || own.iter().any(is_own)
}

/// Text between quotes.
fn literals(text: &str) -> BTreeSet<String> {
    let inside = text.split('"').skip(1).step_by(2);
    inside
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

fn only(mut numbers: impl Iterator<Item = usize>) -> Option<usize> {
    numbers.next().filter(|_| numbers.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(config: &str, expected: Option<&str>) {
        let keeper = |dir, backend_text| Keeper { dir, backend_text };
        let keepers = [
            keeper("app", "{ bucket = \"states\" }"),
            keeper("net", ""),
            keeper("infra/dns", "{ path = \"../../states/dns.tfstate\" }"),
            keeper("edge", "{ bucket = \"states\" key = \"edge\" }"),
        ];
        let found = state_of(&keepers, 0, config).map(|up| keepers[up].dir);
        assert_eq!(found, expected, "{config}");
    }

    #[test]
    fn a_state_is_known_by_its_file_or_its_key() {
        check("{ path = \"../net/terraform.tfstate\" }", Some("net"));
        check("{ path = \"../states/dns.tfstate\" }", Some("infra/dns"));
        check("{ bucket = \"states\" key = \"edge\" }", Some("edge"));
        check("{ bucket = \"states\" }", None);
        check("{ bucket = \"elsewhere\" key = \"edge\" }", None);
        check("{ path = \"../other/terraform.tfstate\" }", None);
        check("{ path = var.path }", None);
    }

    #[test]
    fn an_input_takes_no_name_that_is_taken() {
        let outputs = ["id", "zone"].map(str::to_owned).into();
        let seen = inputs_instead("net", "n", &outputs, |name| name == "id");
        assert_eq!(
            seen,
            "{ n_id = stack.net.output.id, zone = stack.net.output.zone }"
        );
        let seen = inputs_instead("net", "n", &BTreeSet::new(), |_| false);
        assert_eq!(seen, "{ KEY = stack.net.output.KEY }");
    }
}
