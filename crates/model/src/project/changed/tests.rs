//! Changes as data: the affected stacks, with the path that caused it.

use super::*;
use crate::base::diagnostic::Location;
use crate::hcl::expression::Input;
use crate::project::context::Context;
use crate::stage::StageBlock;
use crate::stage::facts::FactsBranch;

fn project() -> Project {
    let mut project = crate::graph::tests::project(
        "
        base root
        base network
        base cluster
        base nested
        ",
    );
    for (name, path) in [
        ("root", ""),
        ("network", "infra/network"),
        ("cluster", "infra/cluster"),
        ("nested", "infra/cluster/addons"),
    ] {
        let stack = project.stacks.get_mut(&name.parse().unwrap()).unwrap();
        path.clone_into(&mut stack.path);
    }
    let cluster = project.stacks.get_mut(&"cluster".parse().unwrap()).unwrap();
    cluster.var_files = vec!["env/prod.tfvars".to_owned()];
    cluster.watch = vec!["charts/**".to_owned()];
    cluster.include = vec!["local.tfvars".to_owned()];
    project
}

fn reach(stack: &StackName) -> SourceExtent {
    let mut reach = SourceExtent::default();
    match stack.as_str() {
        "network" => {
            reach.dirs.insert("modules/net".to_owned());
            reach.dirs.insert("vendor/lib/subnet".to_owned());
        }
        "nested" => {
            reach.files.insert("keys/ca.pem".to_owned());
            reach.files.insert("pages/**/*.html".to_owned());
            reach.files.insert("terrane.hcl".to_owned());
        }
        _ => {}
    }
    reach
}

#[track_caller]
fn check(changed: &str, expected: &str) {
    let changed = changed.split_whitespace().map(str::to_owned).collect();
    let mut project = project();
    // A stack at the root owns every path that no other stack owns. It has a test of its own.
    project.stacks.remove(&"root".parse().unwrap());
    let touched = stacks_touched(&project, &reach, &Links::new(), &changed);
    let shown: Vec<String> = touched
        .into_iter()
        .map(|(stack, path)| format!("{stack}: {path}"))
        .collect();
    assert_eq!(shown.join(", "), expected);
}

#[test]
fn files_of_the_root_module() {
    check("infra/network/main.tf", "network: infra/network/main.tf");
    check(
        "infra/network/templates/a.tpl",
        "network: infra/network/templates/a.tpl",
    );
    check("infra/network-old/main.tf", "");
    check("infra/main.tf README.md", "");
    check(
        "infra/network/b.tf infra/network/a.tf",
        "network: infra/network/a.tf",
    );
    check(
        "infra/network/.terraform.lock.hcl",
        "network: infra/network/.terraform.lock.hcl",
    );
}

#[test]
fn a_nested_stack_owns_its_directory() {
    check(
        "infra/cluster/addons/x.tf",
        "nested: infra/cluster/addons/x.tf",
    );
    check("infra/cluster/main.tf", "cluster: infra/cluster/main.tf");
}

#[test]
fn modules_and_named_files() {
    check("modules/net/sub/x.tf", "network: modules/net/sub/x.tf");
    check("modules/other/x.tf", "");
    check("keys/ca.pem", "nested: keys/ca.pem");
    check("pages/a/b.html", "nested: pages/a/b.html");
    check("pages/a/b.css", "");
}

#[test]
fn files_that_the_stack_names() {
    check("env/prod.tfvars", "cluster: env/prod.tfvars");
    check("charts/a/b.yaml", "cluster: charts/a/b.yaml");
    check("charts.yaml", "");
    check(
        "infra/cluster/local.tfvars",
        "cluster: infra/cluster/local.tfvars",
    );
}

#[test]
fn a_submodule_counts_as_all_that_is_in_it() {
    check("vendor/lib", "network: vendor/lib");
    check("vendor/lib2", "");
    check(
        "infra/cluster/addons",
        "cluster: infra/cluster/addons, nested: infra/cluster/addons",
    );
}

#[test]
fn project_files_are_no_source_unless_a_module_reads_them() {
    check("infra/network/stack.hcl extra.terrane.hcl", "");
    check("terrane.hcl", "nested: terrane.hcl");
}

#[test]
fn a_stack_at_the_root_owns_what_is_nobody_elses() {
    let touched = |path: &str| {
        let changed = BTreeSet::from([path.to_owned()]);
        let touched = stacks_touched(&project(), &reach, &Links::new(), &changed);
        touched.contains_key(&"root".parse().unwrap())
    };
    assert!(touched("main.tf"));
    assert!(touched("docs/x.md"));
    assert!(!touched("infra/network/main.tf"));
    assert!(!touched("terrane.hcl"));
}

fn changed_by(edit: impl FnOnce(&mut Project)) -> String {
    let before = project();
    let mut after = project();
    edit(&mut after);
    let names = definitions_changed(&before, &after);
    names
        .into_iter()
        .map(String::from)
        .collect::<Vec<_>>()
        .join(" ")
}

fn edit_stack(name: &str, edit: impl FnOnce(&mut Stack)) -> String {
    changed_by(|project| edit(project.stacks.get_mut(&name.parse().unwrap()).unwrap()))
}

#[test]
fn definitions() {
    assert_eq!(changed_by(|_| {}), "");
    assert_eq!(edit_stack("network", |s| s.declared_at.line = 7), "");
    assert_eq!(edit_stack("network", |s| s.protected = true), "network");
    assert_eq!(
        edit_stack("network", |s| s.engine.flavor =
            crate::project::engine::Flavor::Terraform),
        "network"
    );
    let copied = changed_by(|project| {
        let mut new = project.stacks[&"network".parse().unwrap()].clone();
        new.name = "other".parse().unwrap();
        project.stacks.insert(new.name.clone(), new);
    });
    assert_eq!(copied, "other");
}

#[test]
fn contexts_and_targets_belong_to_their_stacks() {
    let context = |value: &str| Context {
        name: "login".to_owned(),
        priority: 0,
        env: BTreeMap::new(),
        pass_env: vec![value.to_owned()],
        vars: BTreeMap::new(),
        files: BTreeMap::new(),
        hooks: Vec::new(),
        secrets: Vec::new(),
        written: crate::project::context::ContextDefinition::default(),
    };
    let with = |value: &str| {
        let mut project = project();
        project.contexts.insert("login".to_owned(), context(value));
        let cluster = project.stacks.get_mut(&"cluster".parse().unwrap()).unwrap();
        cluster.contexts = vec!["login".to_owned()];
        project
    };
    let changed = definitions_changed(&with("A"), &with("B"));
    assert_eq!(changed, BTreeSet::from(["cluster".parse().unwrap()]));
}

/// A project whose stack `cluster` has these stages, and a place for facts.
fn with_stages(stages: crate::stage::Stages) -> Project {
    let mut project = project();
    project.stacks.remove(&"root".parse().unwrap());
    let place = FactsBranch {
        name: "runtime".to_owned(),
        repository: None,
        branch: None,
        owns: crate::stage::facts::BranchOwnership::Branch,
        credential: None,
        sensitive: crate::stage::facts::SensitiveFacts::Encrypt,
        encrypt_all: false,
        declared_at: Location::default(),
    };
    project.facts.insert("runtime".to_owned(), place);
    let cluster = project.stacks.get_mut(&"cluster".parse().unwrap()).unwrap();
    cluster.stages = stages;
    project
}

fn block(kind: &str, name: &str, attrs: serde_json::Value) -> StageBlock {
    let known = |(key, value): (String, serde_json::Value)| (key, Input::Known(value));
    let serde_json::Value::Object(attrs) = attrs else {
        panic!("no object");
    };
    StageBlock {
        kind: kind.to_owned(),
        name: name.to_owned(),
        for_each: None,
        attrs: attrs.into_iter().map(known).collect(),
        blocks: Vec::new(),
        at: Location::default(),
    }
}

fn stages() -> crate::stage::Stages {
    use serde_json::json;
    crate::stage::Stages {
        publish: vec![block("publish", "runtime", json!({"contract": "edge/v1"}))],
        bootstrap: vec![block(
            "flux",
            "",
            json!({"manifests": ["./flux/install.yaml"], "root": ["flux/root/"]}),
        )],
        gates: vec![block(
            "command",
            "smoke",
            json!({"run": ["sh", "scripts/./deep/..//smoke.sh"]}),
        )],
    }
}

/// A link's target is part of the source of the link's owner: a file, a directory, another stack's directory, also
/// through a second link.
#[test]
fn what_links_lead_to_is_source() {
    let project = with_stages(stages());
    let dir = project.stacks[&"cluster".parse().unwrap()].path.clone();
    let links = |link: &str, target: &str| {
        Links::from([
            (link.to_owned(), target.to_owned()),
            ("again".to_owned(), "shared".to_owned()),
        ])
    };
    for (link, target, path, is_source) in [
        (format!("{dir}/main.tf"), "shared/m.tf", "shared/m.tf", true),
        (
            format!("{dir}/main.tf"),
            "shared/m.tf",
            "shared/n.tf",
            false,
        ),
        (format!("{dir}/lib"), "shared", "shared/deep/m.tf", true),
        (format!("{dir}/lib"), "again/deep", "shared/deep/m.tf", true),
        (format!("{dir}/lib"), "again/deep", "shared/m.tf", false),
        (dir.clone(), "real", "real/main.tf", true),
        ("scripts".to_owned(), "tools", "tools/smoke.sh", true),
        ("scripts".to_owned(), "tools", "tools/other.sh", false),
    ] {
        let changed = BTreeSet::from([path.to_owned()]);
        let links = links(&link, target);
        let touched = stacks_touched(&project, &|_| SourceExtent::default(), &links, &changed);
        assert_eq!(!touched.is_empty(), is_source, "{link} -> {target}: {path}");
    }
}

#[test]
fn what_stages_read_is_source() {
    let project = with_stages(stages());
    for (path, is_source) in [
        ("contracts/edge/v1.json", true),
        ("contracts/edge/v2.json", false),
        (".sops.yaml", true),
        ("flux/install.yaml", true),
        ("flux/root/apps/sync.yaml", true),
        ("flux/other.yaml", false),
        ("scripts/smoke.sh", true),
        ("scripts/other.sh", false),
    ] {
        let changed = BTreeSet::from([path.to_owned()]);
        let touched = stacks_touched(
            &project,
            &|_| SourceExtent::default(),
            &Links::new(),
            &changed,
        );
        assert_eq!(!touched.is_empty(), is_source, "{path}: {touched:?}");
    }
}

#[test]
fn stages_and_places_of_facts_belong_to_their_stack() {
    let before = with_stages(stages());
    let edited = |edit: &dyn Fn(&mut Project)| {
        let mut after = before.clone();
        edit(&mut after);
        let changed = definitions_changed(&before, &after);
        changed.into_iter().map(String::from).collect::<Vec<_>>()
    };
    let cluster: StackName = "cluster".parse().unwrap();
    let moved = |project: &mut Project| {
        let stack = project.stacks.get_mut(&cluster).unwrap();
        stack.stages.gates[0].at.line = 9;
        project.facts.get_mut("runtime").unwrap().declared_at.line = 9;
    };
    assert_eq!(edited(&moved), [""; 0]);
    let encrypted =
        |project: &mut Project| project.facts.get_mut("runtime").unwrap().encrypt_all = true;
    assert_eq!(edited(&encrypted), ["cluster"]);
    let gone = |project: &mut Project| {
        let stack = project.stacks.get_mut(&cluster).unwrap();
        stack.stages.gates.clear();
    };
    assert_eq!(edited(&gone), ["cluster"]);
}
