//! Projects on disk: where they are, who they are, what is wrong with them.

use std::collections::BTreeMap;

use control::project::init::{self, ProposeError};
use control::project::open::{self, OpenProject, ProjectIdSource};
use control::project::{formatting, secret_references};
use control::secrets::secret_files::SecretFiles;
use control::validation::{self, EngineFindings};
use drivers::engine::EngineSearch;
use model::base::diagnostic::{Finding, Severity};
use serde_json::json;

use crate::world::{World, stack};

/// The project as it is, with whatever is wrong with it.
fn opened(world: &World) -> OpenProject {
    let mut open = open::open(&world.root(), &world.env).unwrap();
    validation::check_stages(&mut open);
    open
}

fn codes(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|it| it.code).collect()
}

#[tokio::test]
async fn a_sound_project_has_no_finding() {
    let world = World::chain(&["a", "b"]).await;
    assert_eq!(opened(&world).loaded.findings, []);
}

#[tokio::test]
async fn an_output_that_its_module_lacks_is_an_error_of_the_project() {
    let world = World::chain(&["a", "b"]).await;
    world.script("a", &json!({"resources": {"r": "1"}}));
    let loaded = opened(&world).loaded;
    assert!(loaded.has_errors());
    assert_eq!(codes(&loaded.findings), ["unknown-output"]);
}

#[tokio::test]
async fn an_input_that_its_module_lacks_is_an_error_with_its_place() {
    let world = World::chain(&["a", "b"]).await;
    world.script("b", &json!({"resources": {"r": "1"}}));
    let findings = opened(&world).loaded.findings;
    assert_eq!(codes(&findings), ["unknown-input"]);
    assert_eq!(findings[0].places[0].at.file, "terrane.hcl");
}

#[tokio::test]
async fn stacks_that_need_each_other_are_an_error() {
    let world = World::new(
        &(stack("a", "inputs = { up = stack.b.output.id }")
            + &stack("b", "inputs = { up = stack.a.output.id }")),
    )
    .await;
    for name in ["a", "b"] {
        world.script(
            name,
            &json!({"resources": {"r": "${var.up}"}, "outputs": {"id": "@r"}}),
        );
    }
    let loaded = opened(&world).loaded;
    assert!(loaded.has_errors());
    assert_eq!(codes(&loaded.findings), ["dependency-cycle"]);
}

#[tokio::test]
async fn a_missing_directory_is_an_error() {
    let world = World::new(&stack("a", "")).await;
    assert_eq!(
        codes(&opened(&world).loaded.findings),
        ["missing-directory"]
    );
}

#[tokio::test]
async fn a_sensitive_output_for_a_plain_variable_is_a_warning() {
    let world = World::chain(&["a", "b"]).await;
    world.script("a", &json!({"outputs": {"id": "1"}, "sensitive": ["id"]}));
    let loaded = opened(&world).loaded;
    assert!(!loaded.has_errors());
    assert_eq!(loaded.findings[0].severity, Severity::Warning);
}

#[tokio::test]
async fn a_file_that_is_not_hcl_is_an_error_and_not_a_panic() {
    let world = World::with_file("project \"demo\" {\n").await;
    let loaded = opened(&world).loaded;
    assert!(loaded.has_errors());
    assert!(loaded.project.is_none());
}

#[tokio::test]
async fn errors_are_listed_before_warnings() {
    let world = World::chain(&["a", "b"]).await;
    world.script("a", &json!({"outputs": {"id": "1"}, "sensitive": ["id"]}));
    let file = world.read("terrane.hcl");
    world.write("terrane.hcl", &(file + &stack("c", "")));
    let findings = opened(&world).loaded.findings;
    let severities: Vec<Severity> = findings.iter().map(|it| it.severity).collect();
    assert_eq!(severities, [Severity::Error, Severity::Warning]);
}

/// A project whose context names a secret of an encrypted file.
async fn with_secret_file() -> World {
    let context = "context \"db\" {\n  autoattach = [\"target:local\"]\n  env = { PGPASSWORD = secret(\"sops:db.sops.yaml#database.password\") }\n}\n";
    let world = World::new(&format!("{context}{}", stack("a", ""))).await;
    world.script("a", &json!({"resources": {"r": "1"}}));
    world
}

/// A file with this key, encrypted for somebody else.
fn encrypt(world: &World, key: &str) {
    const RECIPIENT: &str = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p";
    let path = "db.sops.yaml";
    world.write(path, &format!("database:\n  {key}: x\n"));
    let root = world.root();
    let files = SecretFiles::new(&world.env, &root);
    let recipients = [RECIPIENT.to_owned()];
    let (text, _) = files.encrypt(path.as_ref(), None, &recipients).unwrap();
    world.write(path, &text);
}

fn of_secrets(world: &World) -> Vec<Finding> {
    let mut open = opened(world);
    secret_references::check(&mut open.loaded, &world.root());
    open.loaded.findings
}

#[tokio::test]
async fn a_missing_file_of_secrets_is_a_warning_that_says_how_to_make_it() {
    let world = with_secret_file().await;
    let findings = of_secrets(&world);
    assert_eq!(codes(&findings), ["missing-secret"]);
    let hint = "`terrane secret set db.sops.yaml database.password` makes it";
    assert_eq!(findings[0].hint.as_deref(), Some(hint));
}

#[tokio::test]
async fn a_misspelt_key_of_a_secret_is_a_warning_with_the_right_one() {
    let world = with_secret_file().await;
    encrypt(&world, "passwort");
    let findings = of_secrets(&world);
    assert_eq!(
        findings[0].message,
        "`db.sops.yaml` has no value at `database.password`"
    );
    assert_eq!(
        findings[0].hint.as_deref(),
        Some("did you mean `database.passwort`?")
    );
}

#[tokio::test]
async fn a_key_that_the_file_of_secrets_has_is_no_finding() {
    let world = with_secret_file().await;
    encrypt(&world, "password");
    assert_eq!(of_secrets(&world), []);
}

#[tokio::test]
async fn a_project_is_found_from_a_directory_inside_it() {
    let world = World::single().await;
    let found = open::find_root(&world.root().join("stacks/a")).unwrap();
    assert_eq!(found, world.root().canonicalize().unwrap());
}

#[tokio::test]
async fn a_directory_outside_of_a_project_has_none() {
    let world = World::single().await;
    let outside = world.root().with_file_name("home");
    let refused = open::find_root(&outside).unwrap_err();
    assert!(
        refused
            .to_string()
            .starts_with("there is no `terrane.hcl` in"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_project_is_known_by_the_id_that_it_writes() {
    let world = World::single().await;
    let identity = opened(&world).identity;
    assert_eq!(
        (identity.id.as_str(), identity.from),
        ("demo", ProjectIdSource::Written)
    );
}

#[tokio::test]
async fn a_project_without_an_id_is_known_by_its_place() {
    let world = World::with_file("project \"demo\" {}\n").await;
    let identity = opened(&world).identity;
    assert_eq!(identity.from, ProjectIdSource::Path);
    assert!(identity.id.starts_with("demo-"), "{}", identity.id);
}

#[tokio::test]
async fn the_id_of_a_broken_file_still_counts() {
    let world =
        World::with_file("project \"demo\" {\n  id = \"k3v9qd\"\n  engine \"tofu\" {\n").await;
    assert_eq!(opened(&world).identity.id, "k3v9qd");
}

#[tokio::test]
async fn a_home_remembers_the_name_of_its_project() {
    let world = World::single().await;
    assert_eq!(world.control.home.claim_for("demo").unwrap(), None);
    assert_eq!(world.control.home.claim_for("demo").unwrap(), None);
    assert_eq!(
        world.control.home.claim_for("other").unwrap().as_deref(),
        Some("demo")
    );
}

#[tokio::test]
async fn a_proposed_project_has_every_root_module() {
    let world = World::new("").await;
    for name in ["a", "b"] {
        world.script(name, &json!({"resources": {"r": "1"}}));
    }
    std::fs::remove_file(world.root().join("terrane.hcl")).unwrap();
    let path = world.env["PATH"].clone();
    let search = EngineSearch::new(Some(path.as_ref()), &world.control.cache);
    let proposed = init::propose(&world.root(), &search, &BTreeMap::new()).unwrap();
    init::write(&world.root(), &proposed.text).unwrap();
    let (_, project) = world.open();
    let paths: Vec<&str> = project
        .stacks
        .values()
        .map(|stack| stack.path.as_str())
        .collect();
    assert_eq!(paths, ["stacks/a", "stacks/b"]);
}

#[tokio::test]
async fn a_project_file_is_not_overwritten_by_a_proposal() {
    let world = World::single().await;
    let before = world.read("terrane.hcl");
    let refused = init::write(&world.root(), "");
    assert!(matches!(refused, Err(ProposeError::Exists { .. })));
    assert!(init::check_free(&world.root()).is_err());
    assert_eq!(world.read("terrane.hcl"), before);
}

/// Makes the engine format: it writes `x = 1` without spaces around, and names the files of a directory.
const FORMATS: &str = r#"if test "$1" = fmt; then
  for word; do last=$word; done
  if test "$last" = -; then sed 's/ *= */ = /'; exit 0; fi
  case " $* " in *" -check "*) grep -l 'a=1' "$last"/*.tf; test $? = 0 && exit 3 || exit 0;; esac
  grep -l 'a=1' "$last"/*.tf; sed -i 's/a=1/a = 1/' "$last"/*.tf; exit 0
fi"#;

async fn format(world: &World, check: bool) -> Vec<String> {
    let (open, project) = world.open();
    world.before_engine(FORMATS);
    let cache = &world.control.cache;
    let env = world_env(world);
    let report = formatting::format(&open, &project, &env, cache, check)
        .await
        .unwrap();
    report
        .changed
        .iter()
        .map(|path| path.display().to_string())
        .collect()
}

/// With the programs that the engine calls.
fn world_env(world: &World) -> BTreeMap<String, String> {
    let mut env = world.env.clone();
    let path = format!("{}:/usr/bin:/bin", env["PATH"]);
    env.insert("PATH".to_owned(), path);
    env
}

async fn unformatted() -> World {
    let world = World::single().await;
    world.write("stacks/a/locals.tf", "locals {\n a=1\n}\n");
    world
}

#[tokio::test]
async fn a_format_check_names_the_files_and_changes_none() {
    let world = unformatted().await;
    assert_eq!(format(&world, true).await, ["stacks/a/locals.tf"]);
    assert!(world.read("stacks/a/locals.tf").contains("a=1"));
}

#[tokio::test]
async fn formatting_changes_the_files_that_it_names() {
    let world = unformatted().await;
    assert_eq!(format(&world, false).await, ["stacks/a/locals.tf"]);
    assert!(world.read("stacks/a/locals.tf").contains("a = 1"));
    assert!(format(&world, true).await.is_empty());
}

#[tokio::test]
async fn the_project_file_is_formatted_too() {
    let world = World::single().await;
    let file = world.read("terrane.hcl").replace("order = 0", "order=0");
    world.write("terrane.hcl", &file);
    assert_eq!(format(&world, false).await, ["terrane.hcl"]);
    assert!(world.read("terrane.hcl").contains("order = 0"));
}

async fn by_engine(world: &World, report: &str) -> EngineFindings {
    let (open, project) = world.open();
    world.before_engine(&format!(
        "test \"$1\" = validate && echo '{report}' && exit 0"
    ));
    let cache = &world.control.cache;
    validation::by_engine(&open, &project, &world.env, cache)
        .await
        .unwrap()
}

#[tokio::test]
async fn an_engine_that_finds_nothing_adds_nothing() {
    let world = World::single().await;
    let found = by_engine(&world, r#"{"diagnostics": []}"#).await;
    assert_eq!(found.findings, []);
}

#[tokio::test]
async fn what_the_engine_finds_points_into_the_project() {
    let world = World::single().await;
    let report = json!({"diagnostics": [{"severity": "error", "summary": "Bad type.", "detail": "No such type.",
        "range": {"filename": "main.tf", "start": {"line": 1, "column": 1, "byte": 0}, "end": {"line": 1, "column": 9, "byte": 8}}}]});
    let found = by_engine(&world, &report.to_string()).await;
    assert_eq!(found.findings[0].message, "tofu on `stacks/a`: Bad type");
    assert_eq!(found.findings[0].places[0].at.file, "stacks/a/main.tf");
    assert!(found.texts.contains_key("stacks/a/main.tf"));
}

#[tokio::test]
async fn an_engine_that_says_nothing_readable_is_a_finding() {
    let world = World::single().await;
    let found = by_engine(&world, "segmentation fault").await;
    assert_eq!(found.findings.len(), 1);
    assert_eq!(found.findings[0].severity, Severity::Error);
}

#[tokio::test]
async fn a_module_of_two_stacks_is_checked_once() {
    let blocks = stack("a", "") + &stack("b", "").replace("stacks/b", "stacks/a");
    let world = World::new(&blocks).await;
    world.script("a", &json!({"resources": {"r": "1"}}));
    let report =
        json!({"diagnostics": [{"severity": "warning", "summary": "Old syntax", "detail": ""}]});
    let found = by_engine(&world, &report.to_string()).await;
    assert_eq!(found.findings.len(), 1);
}
