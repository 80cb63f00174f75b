//! `writer` blocks: their result, and those that would admit the wrong people.

use super::*;

const STACK: &str = "stack \"s\" {\n  path   = \"m\"\n  target = \"t\"\n  layer  = \"low\"\n}\n";
const MODULE: &str = "== m/main.tf\noutput \"o\" { value = 1 }\n";

#[test]
fn a_writer_is_read() {
    let text = r#"writer "ci" {
  issuer   = "https://gitlab.example.io"
  claims   = { project_path = "group/${project.name}", ref_protected = true, ref = ["main", "release-*"] }
}
writer "github" {
  issuer    = "https://token.actions.githubusercontent.com"
  audience  = "infra"
  claims    = { repository_owner = "example" }
  token_env = "OIDC_TOKEN"
}
"#;
    let loaded = load_tree(&tree(&format!("{BASE}{STACK}{text}{MODULE}")));
    assert_eq!(rendered(&loaded), "");
    let writers = loaded.project.expect("a project").writers;
    let ci = &writers["ci"];
    assert_eq!(ci.audience, "terrane");
    assert_eq!(ci.token_env, "TERRANE_ID_TOKEN");
    let claims: Vec<(&str, String)> = ci
        .claims
        .iter()
        .map(|(name, patterns)| (name.as_str(), patterns.join("|")))
        .collect();
    assert_eq!(
        claims,
        [
            ("project_path", "group/p".to_owned()),
            ("ref", "main|release-*".to_owned()),
            ("ref_protected", "true".to_owned()),
        ]
    );
    let github = &writers["github"];
    assert_eq!(
        (github.audience.as_str(), github.token_env.as_str()),
        ("infra", "OIDC_TOKEN")
    );
}

#[test]
fn writers_that_let_anybody_in() {
    insta::assert_snapshot!(check_with_base(&format!(
        r#"{STACK}writer "free" {{
  issuer = "https://gitlab.example.io"
  claims = {{ ref = "*" }}
}}
writer "shared" {{
  issuer = "https://token.actions.githubusercontent.com"
  claims = {{ ref = "refs/heads/main" }}
}}
writer "near" {{
  issuer = "https://token.actions.githubusercontent.com"
  claims = {{ repository = "exam*/infra", ref = "refs/heads/main" }}
}}
writer "lab" {{
  issuer = "https://gitlab.com"
  claims = {{}}
}}
writer "bent" {{
  issuer   = env("ISSUER", "https://example.io")
  claims   = {{ repository = env("REPO", "x"), ref = git.branch }}
}}
writer "open" {{
  issuer = "http://example.io"
  claims = {{ repository = {{}}, ref = [] }}
}}
writer "anyone" {{ issuer = "https://example.io" }}
{MODULE}"#
    )), @r#"
error open-writer: writer `free` lets everybody in who gets a token from `https://gitlab.example.io`
  terrane.hcl:12:12 does not identify the owner of the job
  hint: add a claim such as `repository = "OWNER/NAME"`
error open-writer: writer `shared` lets everybody in who gets a token from `https://token.actions.githubusercontent.com`
  terrane.hcl:16:12 does not identify the owner of the job
  hint: add a claim such as `repository = "OWNER/NAME"`
error open-writer: writer `near` lets everybody in who gets a token from `https://token.actions.githubusercontent.com`
  terrane.hcl:20:12 does not identify the owner of the job
  hint: add a claim such as `repository = "OWNER/NAME"`
error open-writer: writer `lab` lets everybody in who gets a token from `https://gitlab.com`
  terrane.hcl:24:12 does not identify the owner of the job
  hint: add a claim such as `project_path = "GROUP/PROJECT"`
error writer-from-outside: a `writer` must not depend on the requester's environment or branch
  terrane.hcl:27:14 write it out
error writer-from-outside: a `writer` must not depend on the requester's environment or branch
  terrane.hcl:28:16 write it out
error writer-from-outside: a `writer` must not depend on the requester's environment or branch
  terrane.hcl:28:47 write it out
error invalid-value: `http://example.io` is not an `https://` address
  terrane.hcl:31:12 keys from there could belong to anyone
  hint: it is the `iss` of the tokens, such as `https://gitlab.example.io`
error wrong-type: claim `repository` must be a string or a list of some, this is an object
  terrane.hcl:32:14 this entry
  hint: `*` matches anything but `/`, `**` anything; of a list one must match
error wrong-type: claim `ref` must be a string or a list of some, this is a list
  terrane.hcl:32:31 this entry
  hint: `*` matches anything but `/`, `**` anything; of a list one must match
error missing-attribute: writer `anyone` has no `claims`
  terrane.hcl:34:1 `claims` is required
  hint: add `claims = …`: claims the token must contain: a string, or a list of which one must match; `*` matches anything but `/`, `**` anything
error invalid-name: `anyone` has a meaning of its own among writers
  terrane.hcl:34:8 call it otherwise
"#);
}

#[test]
fn a_target_of_servers_alone_is_applied_by_nobody_yet() {
    let text = "target \"prod\" { writers = [\"server\"] }\n";
    let said = check(&format!("{BASE}{STACK}{text}{MODULE}"));
    assert_eq!(
        said,
        "warning no-writer: target `prod` cannot be applied yet\n  \
         terrane.hcl:10:27 a server's own runners are not built yet\n  \
         hint: name a `writer` block of a CI job beside it\n"
    );
}
