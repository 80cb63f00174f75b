//! The endpoint as real engines use it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use model::state::ExpectedHead;
use model::state::lock::LockInfo;
use model::state::secret_paths::SecretPaths;

use crate::endpoint::{Endpoint, Home, network};

const SOURCE: &str = r#"
terraform {
  backend "http" {}
}
variable "word" {
  default = "one"
}
resource "terraform_data" "it" {
  input = var.word
}
output "word" {
  value = terraform_data.it.output
}
"#;

/// Every engine that is not left out by name.
pub(crate) fn engines() -> Vec<PathBuf> {
    testkit::engines::all()
        .into_iter()
        .map(|(_, program)| program)
        .collect()
}

/// A directory with a source in it.
pub(crate) struct Slot {
    pub(crate) dir: tempfile::TempDir,
    engine: PathBuf,
}

impl Slot {
    pub(crate) fn new(engine: &Path) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("main.tf"), SOURCE).unwrap();
        Self {
            dir,
            engine: engine.to_owned(),
        }
    }

    /// Runs the engine against an endpoint; its exit code and all it said.
    async fn run(&self, endpoint: &Endpoint, args: &[&str]) -> (i32, String) {
        let environment = endpoint.environment.iter();
        let environment = environment.map(|(name, value)| (*name, value.expose().to_owned()));
        self.run_with(environment.collect(), args).await
    }

    pub(crate) async fn run_with(
        &self,
        environment: Vec<(&'static str, String)>,
        args: &[&str],
    ) -> (i32, String) {
        let mut command = self.command(args);
        command.envs(environment);
        let output: Output = tokio::task::spawn_blocking(move || command.output())
            .await
            .unwrap()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.code().unwrap_or(-1),
            String::from_utf8_lossy(&said).into_owned(),
        )
    }

    #[track_caller]
    pub(crate) fn check(&self, (code, said): (i32, String), expected: i32) -> String {
        assert_eq!(code, expected, "{}: {said}", self.engine.display());
        said
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a real engine, as a run would start it"
    )]
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.engine);
        command
            .args(args)
            .current_dir(self.dir.path())
            .env_clear()
            .envs(std::env::vars_os().filter(|(name, _)| name == "PATH" || name == "HOME"))
            .env("CHECKPOINT_DISABLE", "1")
            .env("TF_IN_AUTOMATION", "1")
            .env("TF_HTTP_RETRY_MAX", "0");
        command
    }
}

pub(crate) const INIT: &[&str] = &["init", "-input=false", "-no-color"];
pub(crate) const APPLY: &[&str] = &["apply", "-auto-approve", "-input=false", "-no-color"];
pub(crate) const PLAN: &[&str] = &["plan", "-input=false", "-no-color"];
pub(crate) const DESTROY: &[&str] = &["destroy", "-auto-approve", "-input=false", "-no-color"];

pub(crate) fn and<'a>(args: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [args, more].concat()
}

#[tokio::test]
async fn from_nothing_to_nothing() {
    for engine in engines() {
        let (home, slot) = (Home::new().await, Slot::new(&engine));
        let run = home.apply(7).await;
        slot.check(slot.run(&run, INIT).await, 0);
        slot.check(slot.run(&run, APPLY).await, 0);
        let first = home.head().await.unwrap();
        assert_eq!(first["outputs"]["word"]["value"], "one");

        let said = slot.check(slot.run(&run, APPLY).await, 0);
        assert!(said.contains("0 added, 0 changed, 0 destroyed"), "{said}");
        assert_eq!(
            home.head().await.unwrap(),
            first,
            "nothing changed, nothing written"
        );

        slot.check(slot.run(&run, &and(APPLY, &["-var=word=two"])).await, 0);
        let second = home.head().await.unwrap();
        assert_eq!(second["outputs"]["word"]["value"], "two");
        assert_eq!(second["lineage"], first["lineage"]);

        slot.check(slot.run(&run, DESTROY).await, 0);
        assert_eq!(
            home.head().await.unwrap()["resources"],
            serde_json::json!([])
        );
        let versions = home.store.state_version_list(&network()).await.unwrap();
        assert_eq!(versions.len(), 3, "every version is kept");
        assert_eq!(home.lock_holder().await, None);
        assert_eq!(home.refusals().await, [""; 0]);
    }
}

#[tokio::test]
async fn a_plan_needs_no_lock_and_gets_none() {
    for engine in engines() {
        let (home, slot) = (Home::new().await, Slot::new(&engine));
        let plan = home.plan(7).await;
        slot.check(slot.run(&plan, INIT).await, 0);
        slot.check(slot.run(&plan, &and(PLAN, &["-lock=false"])).await, 0);
        slot.check(slot.run(&plan, PLAN).await, 1);
        slot.check(slot.run(&plan, &and(APPLY, &["-lock=false"])).await, 1);
        assert_eq!(home.head().await, None);
        assert_eq!(
            home.refusals().await,
            ["LOCK: a plan takes no lock", "POST: a plan writes no state"]
        );
    }
}

#[tokio::test]
async fn a_plan_made_before_the_state_moved_gets_no_lock() {
    for engine in engines() {
        let (home, slot) = (Home::new().await, Slot::new(&engine));
        let plan = home.plan(7).await;
        slot.check(slot.run(&plan, INIT).await, 0);
        slot.check(
            slot.run(&plan, &and(PLAN, &["-lock=false", "-out=saved"]))
                .await,
            0,
        );
        let other = Slot::new(&engine);
        let run = home.apply(8).await;
        other.check(other.run(&run, INIT).await, 0);
        other.check(other.run(&run, APPLY).await, 0);

        // Port and token differ between plan and apply.
        let stale = home.apply_expecting(7, ExpectedHead::Exactly(None)).await;
        let said = slot.check(slot.run(&stale, &["apply", "-no-color", "saved"]).await, 1);
        assert!(said.contains("acquiring the state lock"), "{said}");
        assert_eq!(
            home.store
                .state_version_list(&network())
                .await
                .unwrap()
                .len(),
            1
        );
    }
}

#[tokio::test]
async fn who_comes_second_sees_who_holds_the_lock() {
    for engine in engines() {
        let (home, slot) = (Home::new().await, Slot::new(&engine));
        let info = LockInfo {
            id: "first".to_owned(),
            operation: "OperationTypeApply".to_owned(),
            who: "somebody@elsewhere".to_owned(),
            created: "2026-11-15T18:52:29Z".to_owned(),
            ..LockInfo::default()
        };
        let acquired = home
            .store
            .lock_acquire(&network(), &info, None, ExpectedHead::Any)
            .await;
        acquired.unwrap();
        let run = home.apply(7).await;
        slot.check(slot.run(&run, INIT).await, 0);
        let said = slot.check(slot.run(&run, APPLY).await, 1);
        assert!(said.contains("first"), "the holder is named: {said}");

        slot.check(slot.run(&run, &and(APPLY, &["-lock=false"])).await, 1);
        let saved = slot.dir.path().join("errored.tfstate");
        assert!(saved.exists(), "what was refused is not lost");
        assert_eq!(home.head().await, None);
        assert_eq!(home.lock_holder().await.as_deref(), Some("first"));
        assert!(home.path().join("home/refused/p~network").is_dir());
    }
}

#[tokio::test]
async fn what_an_engine_could_not_deliver_is_adopted() {
    for engine in engines() {
        let (home, slot) = (Home::new().await, Slot::new(&engine));
        let run = home.apply(7).await;
        slot.check(slot.run(&run, INIT).await, 0);
        // A run without its lock is refused, so the engine saves its state.
        slot.check(slot.run(&run, &and(APPLY, &["-lock=false"])).await, 1);
        let file = std::fs::read(slot.dir.path().join("errored.tfstate")).unwrap();
        let run_id = model::base::ids::RunId(7);
        let adopted = home
            .store
            .state_adopt(&network(), run_id, file, false, SecretPaths::default())
            .await
            .unwrap();
        assert!(matches!(adopted, store::Adopted::New(_)), "{adopted:?}");
        let said = slot.check(slot.run(&run, APPLY).await, 0);
        assert!(said.contains("0 added, 0 changed, 0 destroyed"), "{said}");
    }
}
