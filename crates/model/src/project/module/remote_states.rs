//! Which stack's state a `terraform_remote_state` reads, as far as its settings show, and what replaces it if terrane
//! stores that state.

use std::collections::{BTreeMap, BTreeSet};

use crate::hcl::paths;

/// Root modules, by index, with the state locations in their backend settings.
pub(crate) struct BackendIndex<'a> {
    dirs: Vec<&'a str>,
    settings: Vec<BTreeSet<String>>,
    by_setting: BTreeMap<String, Vec<usize>>,
    by_dir: BTreeMap<&'a str, usize>,
    by_file: BTreeMap<String, usize>,
}

impl<'a> BackendIndex<'a> {
    /// Takes the directory of each module and the source text of its backend settings.
    pub(crate) fn new(modules: impl Iterator<Item = (&'a str, &'a str)>) -> Self {
        let mut keepers = Self {
            dirs: Vec::new(),
            settings: Vec::new(),
            by_setting: BTreeMap::new(),
            by_dir: BTreeMap::new(),
            by_file: BTreeMap::new(),
        };
        for (number, (dir, backend_text)) in modules.enumerate() {
            let settings = literals(backend_text);
            for setting in &settings {
                let with = keepers.by_setting.entry(setting.clone()).or_default();
                with.push(number);
                if is_state_file(setting)
                    && let Ok(file) = paths::join(dir, setting)
                {
                    keepers.by_file.insert(file, number);
                }
            }
            keepers.dirs.push(dir);
            keepers.settings.push(settings);
            keepers.by_dir.insert(dir, number);
        }
        keepers
    }

    pub(crate) fn dir(&self, number: usize) -> &'a str {
        self.dirs[number]
    }

    /// The single other module whose backend has all of these settings, at least one of them exclusively, or whose
    /// state file they name.
    pub(crate) fn state_of(&self, reader: usize, config: &str) -> Option<usize> {
        let named = literals(config);
        let by_setting = named.iter().filter_map(|setting| {
            // A bucket is shared; a key is specific to one module.
            let &[up] = self.by_setting.get(setting)?.as_slice() else {
                return None;
            };
            named.is_subset(&self.settings[up]).then_some(up)
        });
        let files = named.iter().filter(|setting| is_state_file(setting));
        let by_file = files.filter_map(|setting| {
            let file = paths::join(self.dirs[reader], setting).ok()?;
            let dir = file.rsplit_once('/').map_or("", |(dir, _)| dir);
            self.by_dir.get(dir).or(self.by_file.get(&file)).copied()
        });
        let found = by_setting.chain(by_file).filter(|up| *up != reader);
        let found: BTreeSet<usize> = found.collect();
        let mut found = found.into_iter();
        found.next().filter(|_| found.next().is_none())
    }
}

fn is_state_file(setting: &str) -> bool {
    setting.ends_with(".tfstate")
}

/// `{ id = stack.net.output.id }`: the outputs in use, each for a variable that does not exist yet.
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

/// Quoted texts.
fn literals(text: &str) -> BTreeSet<String> {
    let inside = text.split('"').skip(1).step_by(2);
    inside
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(config: &str, expected: Option<&str>) {
        let keepers = BackendIndex::new(
            [
                ("app", "{ bucket = \"states\" }"),
                ("net", ""),
                ("infra/dns", "{ path = \"../../states/dns.tfstate\" }"),
                ("edge", "{ bucket = \"states\" key = \"edge\" }"),
            ]
            .into_iter(),
        );
        let found = keepers.state_of(0, config).map(|up| keepers.dir(up));
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
