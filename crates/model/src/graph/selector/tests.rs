//! Selectors as data: words in, names or the error out.

use super::*;
use crate::project::{Backend, LaneScope, Target};

fn project() -> Project {
    let mut project = crate::graph::tests::project(
        "
        hypervisors network
        hypervisors dns
        platforms k8s-dev < network.subnet_id
        platforms k8s-prod < network.subnet_id dns
        legacy edge < k8s-prod.address
        legacy mail
        ",
    );
    for name in ["local", "azure", "empty"] {
        let target = Target {
            name: name.to_owned(),
            writers: Vec::new(),
            lane: LaneScope::Target,
            providers: Vec::new(),
            no_providers: false,
            backend: Backend::Terrane,
            approval: None,
        };
        project.targets.insert(name.to_owned(), target);
    }
    for (name, target, label) in [("k8s-prod", "azure", "prod"), ("edge", "local", "prod")] {
        let stack = project.stacks.get_mut(&name.parse().unwrap()).unwrap();
        stack.target = target.to_owned();
        stack.labels.insert(label.to_owned());
    }
    project
}

fn names(stacks: BTreeSet<StackName>) -> String {
    let names: Vec<String> = stacks.into_iter().map(String::from).collect();
    names.join(" ")
}

fn shown(selection: Result<Selection, SelectorError>) -> String {
    let project = project();
    let graph = Graph::new(&project);
    let changed = |to: &ChangedRef| match to {
        ChangedRef::Git(_) => BTreeSet::from(["dns".parse().unwrap(), "gone".parse().unwrap()]),
        ChangedRef::Applied => BTreeSet::from(["mail".parse().unwrap()]),
    };
    match selection.and_then(|selection| selection.resolve(&graph, &project, &changed)) {
        Ok(stacks) => names(stacks),
        Err(err) => match err.hint() {
            Some(hint) => format!("error: {err}; {hint}"),
            None => format!("error: {err}"),
        },
    }
}

/// Words are separated by `|`.
#[track_caller]
fn check(words: &str, expected: &str) {
    let words: Vec<String> = words
        .split('|')
        .map(|word| word.trim().to_owned())
        .collect();
    assert_eq!(shown(parse(&words)), expected);
}

#[test]
fn names_and_globs() {
    check("network", "network");
    check("k8s-*", "k8s-dev k8s-prod");
    check("{dns,mail}", "dns mail");
    check("network|mail|network", "mail network");
}

#[test]
fn kinds() {
    check("target:azure", "k8s-prod");
    check("target:empty", "");
    check("layer:hypervisors", "dns network");
    check("label:prod", "edge k8s-prod");
    check("changed:main", "dns");
    check("changed:applied", "mail");
}

#[test]
fn neighbours() {
    check("+k8s-prod", "dns k8s-prod network");
    check("k8s-prod+", "edge k8s-prod");
    check("+k8s-prod+", "dns edge k8s-prod network");
    check("changed:origin/main+", "dns edge k8s-prod");
}

#[test]
fn intersections() {
    check("label:prod&target:azure", "k8s-prod");
    check("network+ & layer:platforms", "k8s-dev k8s-prod");
    check("layer:platforms & !label:prod", "k8s-dev");
    check("target:azure&label:prod|mail", "k8s-prod mail");
}

#[test]
fn negatives() {
    check("!mail", "dns edge k8s-dev k8s-prod network");
    check("k8s-*|!label:prod", "k8s-dev");
    check("!label:prod|k8s-*", "k8s-dev");
    check("!network+|!mail", "dns");
    check("layer:legacy|!mail&!edge", "");
}

#[test]
fn mistakes() {
    check(
        "netwrok",
        "error: there is no stack `netwrok`; did you mean `network`?",
    );
    check(
        "zzz",
        "error: there is no stack `zzz`; `terrane graph` lists the stacks",
    );
    check(
        "target:azur",
        "error: there is no target `azur`; did you mean `azure`?",
    );
    check(
        "layer:platform",
        "error: there is no layer `platform`; did you mean `platforms`?",
    );
    check(
        "label:prd",
        "error: there is no label `prd`; did you mean `prod`?",
    );
    check(
        "x-*",
        "error: no stack matches `x-*`; `terrane graph` lists the stacks",
    );
    check(
        "a[",
        "error: `a[` is not a glob: unclosed character class; missing ']'",
    );
    check(
        "!nope",
        "error: there is no stack `nope`; `terrane graph` lists the stacks",
    );
    check(
        "tag:prod",
        "error: `tag:` is not a kind of selector; there are `target:`, `layer:`, `label:` and `changed:`",
    );
    check(
        "dns&",
        "error: `dns&` is not a valid selector: there is no name in it",
    );
    check(
        "changed:",
        "error: `changed:` is not a valid selector: nothing follows the colon",
    );
    check(
        "++dns",
        "error: `++dns` is not a valid selector: write `!` first, then at most one `+` on each side of the name",
    );
}

#[test]
fn the_current_directory() {
    let here = |dir: &str| shown(Ok(Selection::here(dir)));
    assert_eq!(here(""), "dns edge k8s-dev k8s-prod mail network");
    assert_eq!(here("infra"), "dns edge k8s-dev k8s-prod mail network");
    assert_eq!(here("infra/dns"), "dns");
    assert_eq!(here("infra/dns/templates"), "dns");
    assert_eq!(
        here("docs"),
        "error: there is no stack in `docs`; name the stacks, or run the command in the project's root for all of them"
    );
}

#[test]
fn refs_are_known_before_anything_is_compared() {
    let words = ["changed:main".to_owned(), "dns&changed:applied".to_owned()];
    let refs = parse(&words).unwrap().refs();
    assert_eq!(
        refs,
        BTreeSet::from([ChangedRef::Git("main".to_owned()), ChangedRef::Applied])
    );
}

proptest::proptest! {
    #[test]
    fn no_word_is_too_strange(word in "[a-z!+&:*?{}\\[\\] -]{0,12}") {
        let _ = shown(parse(&[word]));
    }
}
