//! Which providers the stacks of a target may use, and which they use.
//!
//! Not here: fetching them (`drivers`), when it is checked (`control`).

use std::collections::BTreeMap;

use crate::base::diagnostic::{Finding, Location};
use crate::hcl::syntax::{SourceFile, parse_source};
use crate::project::module::{self, Module};
use crate::project::{Stack, Target};

/// The lock file that the engines write beside a root module.
pub fn lock_file(dir: &str) -> String {
    crate::project::config::walk::join(dir, ".terraform.lock.hcl")
}

/// It is part of the engine and accesses nothing.
const BUILT_IN: &str = "terraform.io/builtin/terraform";

/// A provider that a stack needs and its target does not list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnlistedProvider {
    /// `namespace/type`, with its host if that is not the default.
    pub provider: String,
    pub at: Location,
}

impl UnlistedProvider {
    pub fn finding(&self, stack: &Stack, target: &Target) -> Finding {
        let provider = &self.provider;
        let name = &target.name;
        Finding::error(
            "unlisted-provider",
            format!(
                "stack `{}` needs the provider `{provider}`, which target `{name}` does not list",
                stack.name
            ),
        )
        .at(self.at.clone(), "needed here")
        .hint(format!(
            "add it to `providers` of target `{name}`, if its stacks may use it"
        ))
    }
}

/// The providers that a stack needs and its target does not list, as far as its source shows: its module, the local
/// modules it calls, and its lock file. Without duplicates.
pub fn unlisted(
    target: &Target,
    modules: &BTreeMap<String, Module>,
    dir: &str,
    lock_file: Option<&str>,
) -> Vec<UnlistedProvider> {
    if !target.limits_providers() {
        return Vec::new();
    }
    let mut found: Vec<UnlistedProvider> = Vec::new();
    let mut see = |address: &str, at: &Location| {
        let provider = short(address);
        let is_new = found.iter().all(|known| known.provider != provider);
        if is_new && !is_allowed(target, address) {
            let at = at.clone();
            found.push(UnlistedProvider { provider, at });
        }
    };
    for dir in module::closure(modules, dir) {
        let Some(module) = modules.get(&dir) else {
            continue;
        };
        for (name, required) in &module.required_providers {
            see(required.source.as_deref().unwrap_or(name), &required.at);
        }
        for (name, at) in &module.implied_providers {
            if !module.required_providers.contains_key(name) {
                see(name, at);
            }
        }
    }
    let path = self::lock_file(dir);
    for (address, at) in lock_file.map_or_else(Vec::new, |text| locked(&path, text)) {
        see(&address, &at);
    }
    found
}

/// The providers in a lock file. Empty if it cannot be read; the engine reports the reason.
pub fn locked(path: &str, text: &str) -> Vec<(String, Location)> {
    let source = SourceFile::new(path, text.to_owned());
    let Ok(body) = parse_source(&source) else {
        return Vec::new();
    };
    let blocks = body
        .blocks()
        .filter(|block| block.ident.as_str() == "provider");
    let named = blocks.filter_map(|block| {
        let label = block.labels.first()?;
        let at = source.location(crate::project::config::shape::label_span(label));
        Some((label.as_str().to_owned(), at))
    });
    named.collect()
}

/// Whether the stacks of a target may use a provider.
pub fn is_allowed(target: &Target, address: &str) -> bool {
    let wanted = short(address);
    let mut listed = target.providers.iter().map(|listed| short(listed));
    !target.limits_providers() || wanted == BUILT_IN || listed.any(|listed| listed == wanted)
}

/// Whether a text can be a provider address: `type`, `namespace/type` or `host/namespace/type`.
pub(crate) fn is_address(text: &str) -> bool {
    let is_name = |part: &str| {
        let is_fine = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':');
        !part.is_empty() && part.chars().all(is_fine)
    };
    let parts: Vec<&str> = text.split('/').collect();
    parts.len() <= 3 && parts.into_iter().all(is_name)
}

/// The usual short form of an address: without the default host, with the default namespace.
pub fn short(address: &str) -> String {
    let address = address.to_lowercase();
    let parts: Vec<&str> = address.split('/').collect();
    match parts.as_slice() {
        ["terraform"] => BUILT_IN.to_owned(),
        [name] => format!("hashicorp/{name}"),
        [host, namespace, name] if is_default_host(host) => format!("{namespace}/{name}"),
        _ => address,
    }
}

/// Either engine's own registry.
fn is_default_host(host: &str) -> bool {
    let domain = host.strip_prefix("registry.");
    matches!(domain, Some("terraform.io" | "opentofu.org"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::tree::MemoryTree;
    use crate::project::{Backend, LaneScope};

    fn target(providers: &[&str]) -> Target {
        Target {
            name: "local".to_owned(),
            writers: Vec::new(),
            lane: LaneScope::Target,
            providers: providers.iter().map(|&name| name.to_owned()).collect(),
            no_providers: false,
            backend: Backend::Terrane,
            approval: None,
        }
    }

    #[test]
    fn addresses_are_compared_as_people_write_them() {
        let list = target(&["hashicorp/random", "example.io/acme/cloud"]);
        for listed in [
            "random",
            "Hashicorp/Random",
            "registry.opentofu.org/hashicorp/random",
            "example.io/acme/cloud",
            "terraform",
            "terraform.io/builtin/terraform",
        ] {
            assert!(is_allowed(&list, listed), "{listed}");
        }
        for unlisted in ["aws", "acme/cloud", "example.io/hashicorp/random"] {
            assert!(!is_allowed(&list, unlisted), "{unlisted}");
        }
        assert!(is_allowed(&target(&[]), "aws"));
        let none = Target {
            no_providers: true,
            ..target(&[])
        };
        assert!(!is_allowed(&none, "aws"));
        assert!(is_allowed(&none, "terraform"));
    }

    #[test]
    fn modules_and_the_lock_file_are_looked_through() {
        let tree: MemoryTree = [
            (
                "a/main.tf",
                "terraform {\n  required_providers {\n    cloud = { source = \"acme/cloud\" }\n  }\n}\n\
                 module \"b\" {\n  source = \"../b\"\n}\nresource \"terraform_data\" \"x\" {}\nresource \"cloud_net\" \"x\" {}\n",
            ),
            (
                "b/main.tf.json",
                r#"{ "resource": { "random_id": { "x": { "byte_length": 1 } } } }"#,
            ),
            (
                "b/other.tf",
                "provider \"aws\" {}\ndata \"google_net\" \"x\" {\n  provider = beta.eu\n}\n",
            ),
        ]
        .into_iter()
        .collect();
        let modules = ["a", "b"].map(|dir| (dir.to_owned(), module::read(&tree, dir).0));
        let modules = BTreeMap::from(modules);
        let lock =
            "# made by init\nprovider \"example.io/acme/other\" {\n  version = \"1.0.0\"\n}\n";
        let found = unlisted(&target(&["acme/cloud"]), &modules, "a", Some(lock));
        let found: Vec<String> = found
            .iter()
            .map(|it| format!("{} {}:{}", it.provider, it.at.file, it.at.line))
            .collect();
        insta::assert_snapshot!(found.join("\n"), @"
        hashicorp/aws b/other.tf:1
        hashicorp/beta b/other.tf:2
        hashicorp/random b/main.tf.json:1
        example.io/acme/other a/.terraform.lock.hcl:2
        ");
        assert_eq!(unlisted(&target(&[]), &modules, "a", Some(lock)), []);
    }
}
