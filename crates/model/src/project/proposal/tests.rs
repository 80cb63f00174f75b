//! The complete output of `init`.

use super::*;

fn found(dir: &str, variables: &str, outputs: &str) -> RootModule {
    let words =
        |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
    RootModule {
        dir: dir.to_owned(),
        variables: words(variables)
            .into_iter()
            .map(|word| match word.strip_suffix('?') {
                Some(optional) => (optional.to_owned(), true),
                None => (word, false),
            })
            .collect(),
        outputs: words(outputs).into_iter().collect(),
        ..RootModule::default()
    }
}

fn with_backend(mut module: RootModule, kind: &str, text: &str) -> RootModule {
    module.backend = Some(kind.to_owned());
    text.clone_into(&mut module.backend_text);
    module
}

fn reading(mut module: RootModule, name: &str, config: &str) -> RootModule {
    module.remote_states.push(FoundRemoteState {
        name: name.to_owned(),
        config: config.to_owned(),
        outputs: BTreeSet::from(["id".to_owned()]),
    });
    module
}

fn proposed(found: Vec<RootModule>) -> String {
    let text = render(&ProjectProposal {
        name: "My Platform".to_owned(),
        id: "k3v9qd".to_owned(),
        flavor: Flavor::Tofu,
        constraint: Some("~> 1.11".to_owned()),
        found,
    });
    hcl_edit::parser::parse_body(&text).unwrap();
    // With every guess accepted, the text is still valid HCL.
    hcl_edit::parser::parse_body(&accepted(&text)).unwrap();
    text
}

/// The text with every guess turned into code.
fn accepted(text: &str) -> String {
    let mut in_guess = false;
    let mut out = String::new();
    for line in text.lines() {
        let comment = line.trim_start().strip_prefix("# ");
        let guess = comment.and_then(|comment| comment.strip_prefix("proposed: "));
        let code = match (guess, comment) {
            (Some(guess), _) => guess.split(", for `").next().unwrap(),
            (None, Some(rest)) if in_guess => rest,
            (None, _) => line,
        };
        in_guess = code.ends_with('{') && guess.is_some() || in_guess && code != "}";
        out.push_str(code);
        out.push('\n');
    }
    out
}

#[test]
fn nothing_found() {
    insta::assert_snapshot!(proposed(Vec::new()));
}

#[test]
fn modules_with_equal_names_of_outputs_and_variables() {
    insta::assert_snapshot!(proposed(vec![
        found("infra/network", "region cidr?", "subnet_id vpc_id name"),
        found("infra/cluster", "subnet_id vpc_id name", "cluster_name"),
        found("infra/apps", "cluster_name", "url"),
    ]));
}

#[test]
fn backends_and_remote_states() {
    let key = |key: &str| format!("bucket = \"states\" key = \"{key}\"");
    let network = with_backend(found("net", "", "subnet_id"), "s3", &key("net.tfstate"));
    let cluster = with_backend(found("cluster", "", ""), "s3", &key("cluster.tfstate"));
    let cluster = reading(cluster, "network", &key("net.tfstate"));
    let edge = reading(found("edge", "", ""), "cluster", "key = local.key");
    let files = with_backend(found("files", "", ""), "local", "");
    let reader = reading(
        found("reader", "", ""),
        "f",
        "path = \"../files/terraform.tfstate\"",
    );
    insta::assert_snapshot!(proposed(vec![network, cluster, edge, files, reader]));
}

#[track_caller]
fn check_names(dirs: &[&str], expected: &[&str]) {
    let modules: Vec<RootModule> = dirs.iter().map(|dir| found(dir, "", "")).collect();
    let modules: Vec<&RootModule> = modules.iter().collect();
    assert_eq!(names::stacks(&modules, "platform"), expected);
}

#[test]
fn names_tell_directories_apart() {
    check_names(&["infra/network", "infra/dns"], &["network", "dns"]);
    check_names(&["prod/net", "dev/net", "x"], &["prod-net", "dev-net", "x"]);
    check_names(&["a/prod/net", "b/prod/net"], &["a-prod-net", "b-prod-net"]);
    check_names(
        &["", "8s", "c42", "state"],
        &["platform", "stack-8s", "stack-c42", "stack-state"],
    );
    check_names(
        &["Foo_Bar", "foo.bar", "grün"],
        &["foo-bar", "foo-bar-2", "gr-n"],
    );
}

#[test]
fn guesses_make_no_circle() {
    let text = proposed(vec![found("a", "of_b", "of_a"), found("b", "of_a", "of_b")]);
    assert_eq!(text.matches("# proposed:").count(), 1, "{text}");
}

#[test]
fn text_is_escaped() {
    assert_eq!(quoted("a\"b\\c${d}%{e}\n"), r#""a\"b\\c$${d}%%{e}\n""#);
}

#[test]
fn roots_are_what_nobody_calls() {
    let tree: crate::base::tree::MemoryTree = [
        (
            "app/main.tf",
            "module \"m\" { source = \"../modules/m\" }\nvariable \"a\" {}\nvariable \"b\" {}\n",
        ),
        ("app/prod.auto.tfvars", "a = 1\n"),
        ("app/.terraform/modules/x/main.tf", ""),
        ("modules/m/main.tf", "module \"n\" { source = \"../n\" }\n"),
        ("modules/n/main.tf", ""),
        ("modules/lonely/main.tf", ""),
        (
            "modules/applied/main.tf",
            "terraform {\n  backend \"s3\" {}\n}\n",
        ),
        ("node_modules/x/main.tf", ""),
        ("docs/readme.md", ""),
        ("terrane.hcl", ""),
        ("example/terrane.hcl", ""),
        ("example/main.tf", ""),
        ("example/deep/main.tf", ""),
        ("broken/main.tf", "resource {{{\n"),
    ]
    .into_iter()
    .collect();
    let survey = find(&tree);
    let roots: Vec<&str> = survey.roots.iter().map(|root| root.dir.as_str()).collect();
    assert_eq!(roots, ["app", "broken", "modules/applied"]);
    let variables: Vec<(&String, &bool)> = survey.roots[0].variables.iter().collect();
    assert_eq!(
        variables,
        [(&"a".to_owned(), &true), (&"b".to_owned(), &false)]
    );
    assert_eq!(survey.called, ["modules/m", "modules/n"]);
    assert_eq!(survey.uncalled, ["modules/lonely"]);
    assert_eq!(survey.unreadable.len(), 1);
}

#[test]
fn edges_are_told_with_their_reasons() {
    let network = with_backend(found("net", "", "subnet_id"), "s3", "key = \"net\"");
    let cluster = reading(found("cluster", "subnet_id", ""), "n", "key = \"net\"");
    let (stacks, edges) = stacks_and_edges(&ProjectProposal {
        name: "p".to_owned(),
        found: vec![network, cluster],
        ..ProjectProposal::default()
    });
    assert_eq!(stacks["net"], "net");
    let edge = |why| ProposedEdge {
        stack: "cluster".to_owned(),
        upstream: "net".to_owned(),
        why,
    };
    let remote = "n".to_owned();
    let variable = "subnet_id".to_owned();
    assert_eq!(
        edges,
        [
            edge(EdgeReason::ReadsState { remote }),
            edge(EdgeReason::SameName { variable }),
        ]
    );
}
