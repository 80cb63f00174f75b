//! What `init` would write, whole.

use super::*;

fn found(dir: &str, variables: &str, outputs: &str) -> Found {
    let words =
        |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
    Found {
        dir: dir.to_owned(),
        variables: words(variables)
            .into_iter()
            .map(|word| match word.strip_suffix('?') {
                Some(optional) => (optional.to_owned(), true),
                None => (word, false),
            })
            .collect(),
        outputs: words(outputs).into_iter().collect(),
        ..Found::default()
    }
}

fn with_backend(mut module: Found, kind: &str, text: &str) -> Found {
    module.backend = Some(kind.to_owned());
    text.clone_into(&mut module.backend_text);
    module
}

fn reading(mut module: Found, name: &str, config: &str) -> Found {
    module.remote_states.push(FoundRemoteState {
        name: name.to_owned(),
        config: config.to_owned(),
    });
    module
}

fn proposed(found: Vec<Found>) -> String {
    let text = render(&Proposal {
        name: "My Platform".to_owned(),
        id: "k3v9qd".to_owned(),
        flavor: Flavor::Tofu,
        constraint: Some("~> 1.11".to_owned()),
        found,
    });
    hcl_edit::parser::parse_body(&text).unwrap();
    // Every guess, accepted, is HCL too.
    hcl_edit::parser::parse_body(&accepted(&text)).unwrap();
    text
}

/// The text with every guess made code.
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
    let modules: Vec<Found> = dirs.iter().map(|dir| found(dir, "", "")).collect();
    let modules: Vec<&Found> = modules.iter().collect();
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
