//! The calls, and the answers of the engines.

use std::fs;
use std::time::Duration;

use model::plan;
use model::run::engine_event::{EngineEvent, EventKind, EventReader, nothing_changes};

use super::*;
use crate::process::Exit;

/// A root module in a slot of its own, and the engine to call.
struct Slot {
    engine: Engine,
    dir: tempfile::TempDir,
    env: Environment,
}

struct Answer {
    exit: Exit,
    events: Vec<EngineEvent>,
    stderr: String,
}

impl Slot {
    fn new(engine: Engine, source: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("main.tf"), source).unwrap();
        let env = environment(dir.path());
        Self { engine, dir, env }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn start(&self, call: &EngineCall<'_>) -> ChildProcess {
        for name in ["events", "stderr"] {
            let _ = fs::remove_file(self.path(name));
        }
        let site = CallSite {
            dir: self.dir.path(),
            env: &self.env,
            stdout: &self.path("events"),
            stderr: &self.path("stderr"),
            inherit: &[],
        };
        self.engine.start(call, &site).unwrap()
    }

    async fn call(&self, call: &EngineCall<'_>) -> Answer {
        let exit = self.start(call).wait().await.unwrap();
        self.answer(exit)
    }

    fn answer(&self, exit: Exit) -> Answer {
        Answer {
            exit,
            events: self.events(),
            stderr: fs::read_to_string(self.path("stderr")).unwrap(),
        }
    }

    fn events(&self) -> Vec<EngineEvent> {
        EventReader::read_all(&fs::read(self.path("events")).unwrap())
    }

    /// Names of the resources in a state file.
    fn resources(&self, state: &str) -> Vec<String> {
        let bytes = fs::read(self.path(state)).unwrap();
        let state: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let resources = state["resources"].as_array().unwrap();
        resources
            .iter()
            .map(|resource| resource["name"].as_str().unwrap().to_owned())
            .collect()
    }

    async fn capture(&self, call: &EngineCall<'_>, stdin: &[u8]) -> (Exit, String) {
        let said = self
            .engine
            .capture(call, self.dir.path(), &self.env, stdin)
            .await
            .unwrap();
        (said.exit, said.stdout_text() + &said.stderr_text())
    }
}

impl Answer {
    #[track_caller]
    fn expect(self, code: i32) -> Self {
        let errors: Vec<_> = self
            .events
            .iter()
            .filter_map(EngineEvent::as_diagnostic)
            .collect();
        assert_eq!(self.exit, Exit::Code(code), "{errors:#?}{}", self.stderr);
        self
    }
}

fn init(lock_file: LockFileMode, backend: &[(String, String)]) -> EngineCall<'_> {
    EngineCall::Init(InitCall {
        lock_file,
        backend_config: backend,
        var_files: &[],
        backend: true,
    })
}

fn plan<'a>(out: &'a Path, mode: PlanMode, var_files: &'a [PathBuf]) -> EngineCall<'a> {
    EngineCall::Plan(PlanCall {
        out,
        mode,
        var_files,
    })
}

const SOURCE: &str = r#"
terraform {
  backend "local" {}
}
variable "name" { type = string }
variable "token" {
  type      = string
  sensitive = true
}
resource "terraform_data" "a" { input = var.name }
output "name" { value = terraform_data.a.output }
output "token" {
  value     = var.token
  sensitive = true
}
"#;

#[tokio::test]
async fn from_init_to_destroy() {
    for engine in engines() {
        let slot = Slot::new(engine, SOURCE);
        let backend = [("path".to_owned(), "kept.tfstate".to_owned())];
        slot.call(&init(LockFileMode::Completed, &backend))
            .await
            .expect(0);
        slot.call(&init(LockFileMode::Readonly, &backend))
            .await
            .expect(0);
        slot.call(&init(LockFileMode::Upgraded, &backend))
            .await
            .expect(0);

        fs::write(
            slot.path("in.tfvars.json"),
            r#"{"name":"x","token":"hush-hush"}"#,
        )
        .unwrap();
        let var_files = [slot.path("in.tfvars.json")];
        let file = slot.path("plan.bin");
        let planned = slot
            .call(&plan(&file, PlanMode::Normal, &var_files))
            .await
            .expect(2);
        assert!(!nothing_changes(
            &planned.events,
            planned.exit.code(),
            false
        ));

        let show = EngineCall::Show {
            plan: &file,
            var_files: &var_files,
        };
        let (exit, json) = slot.capture(&show, b"").await;
        assert_eq!(exit, Exit::Code(0), "{json}");
        let shown = plan::parse(json.as_bytes()).unwrap();
        assert_eq!((shown.counts().create, shown.counts().outputs), (1, 2));
        assert_eq!(shown.engine_version, slot.engine.version.to_string());

        let apply = EngineCall::Apply {
            plan: &file,
            var_files: &var_files,
        };
        slot.call(&apply).await.expect(0);
        assert!(slot.path("kept.tfstate").is_file());

        let (exit, json) = slot
            .capture(
                &EngineCall::Output {
                    var_files: &var_files,
                },
                b"",
            )
            .await;
        assert_eq!(exit, Exit::Code(0), "{json}");
        let outputs: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(outputs["token"]["value"], "hush-hush");

        let again = slot
            .call(&plan(&file, PlanMode::Normal, &var_files))
            .await
            .expect(0);
        assert!(nothing_changes(&again.events, again.exit.code(), false));
        let refreshed = slot
            .call(&plan(&file, PlanMode::RefreshOnly, &var_files))
            .await
            .expect(0);
        assert!(nothing_changes(
            &refreshed.events,
            refreshed.exit.code(),
            true
        ));

        slot.call(&plan(&file, PlanMode::Destroy, &var_files))
            .await
            .expect(2);
        slot.call(&apply).await.expect(0);
        assert_eq!(slot.resources("kept.tfstate"), Vec::<String>::new());
    }
}

#[tokio::test]
async fn other_values_at_apply_are_refused() {
    for engine in engines() {
        let slot = Slot::new(engine, SOURCE);
        slot.call(&init(LockFileMode::Completed, &[]))
            .await
            .expect(0);
        let names = ["plan.tfvars.json", "apply.tfvars.json"];
        for (name, value) in names.iter().zip(["x", "y"]) {
            let text = format!(r#"{{"name":"{value}","token":"hush-hush"}}"#);
            fs::write(slot.path(name), text).unwrap();
        }
        let [first, second] = names.map(|name| [slot.path(name)]);
        let file = slot.path("plan.bin");
        slot.call(&plan(&file, PlanMode::Normal, &first))
            .await
            .expect(2);
        let apply = EngineCall::Apply {
            plan: &file,
            var_files: &second,
        };
        slot.call(&apply).await.expect(1);
    }
}

#[tokio::test]
async fn validate_and_fmt() {
    for engine in engines() {
        let slot = Slot::new(
            engine,
            "variable \"a\" {}\noutput \"b\" { value = var.c }\n",
        );
        let (exit, json) = slot
            .capture(&EngineCall::Validate { var_files: &[] }, b"")
            .await;
        let report: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            (exit, report["error_count"].as_u64()),
            (Exit::Code(1), Some(1)),
            "{json}"
        );

        let stdin = EngineCall::Fmt(FmtCall::Stdin);
        let (exit, text) = slot.capture(&stdin, b"a    = 1\nbcd = 2\n").await;
        assert_eq!((exit, text.as_str()), (Exit::Code(0), "a   = 1\nbcd = 2\n"));

        fs::create_dir(slot.path("inner")).unwrap();
        fs::write(slot.path("inner/ugly.tf"), "output \"a\" {\nvalue=1\n}\n").unwrap();
        let check = EngineCall::Fmt(FmtCall::Check { paths: &[] });
        let ugly = (Exit::Code(3), "inner/ugly.tf\n".to_owned());
        assert_eq!(slot.capture(&check, b"").await, ugly);
        let write = EngineCall::Fmt(FmtCall::Write {
            paths: &[slot.path("inner")],
        });
        assert_eq!(slot.capture(&write, b"").await.0, Exit::Code(0));
        assert_eq!(
            slot.capture(&check, b"").await,
            (Exit::Code(0), String::new())
        );
    }
}

#[tokio::test]
async fn providers_lock_takes_platforms() {
    for engine in engines() {
        let slot = Slot::new(engine, "resource \"terraform_data\" \"a\" {}\n");
        let platforms = ["linux_amd64".to_owned(), "darwin_arm64".to_owned()];
        let lock = EngineCall::ProvidersLock {
            platforms: &platforms,
        };
        let (exit, said) = slot.capture(&lock, b"").await;
        assert_eq!(exit, Exit::Code(0), "{said}");
    }
}

#[tokio::test]
async fn an_interrupted_apply_keeps_what_was_made() {
    const SLOW: &str = r#"
resource "terraform_data" "made" { input = "made" }
resource "terraform_data" "slow" {
  depends_on = [terraform_data.made]
  provisioner "local-exec" { command = "exec sleep 600" }
}
"#;
    for engine in engines() {
        let slot = Slot::new(engine, SLOW);
        slot.call(&init(LockFileMode::Completed, &[]))
            .await
            .expect(0);
        let file = slot.path("plan.bin");
        slot.call(&plan(&file, PlanMode::Normal, &[]))
            .await
            .expect(2);
        let mut running = slot.start(&EngineCall::Apply {
            plan: &file,
            var_files: &[],
        });
        let is_slow = |event: &EngineEvent| matches!(event.kind, EventKind::ProvisionStart(_));
        while !slot.events().iter().any(is_slow) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        running.interrupt().unwrap();
        running.interrupt().unwrap();
        let ended = tokio::time::timeout(Duration::from_mins(1), running.wait()).await;
        let answer = slot.answer(ended.unwrap().unwrap()).expect(1);
        assert!(
            answer
                .events
                .iter()
                .any(|event| event.message.contains("nterrupt"))
        );
        assert_eq!(slot.resources("terraform.tfstate"), ["made", "slow"]);
        assert_eq!(find_errored_state(slot.dir.path()), None);
    }
}

#[test]
fn init_is_needed_again_when_anything_it_depends_on_changes() {
    let engine = engines().remove(0);
    let newer = Engine {
        version: semver::Version::new(9, 0, 0),
        ..engine.clone()
    };
    let base = InitInputs {
        engine: &engine,
        lock_file: None,
        requirements: "ab",
        backend: "c",
    };
    let dir = tempfile::tempdir().unwrap();
    let first = fingerprint(&base);
    assert!(!is_initialised(dir.path(), &first));
    mark_initialised(dir.path(), &first).unwrap();
    assert!(is_initialised(dir.path(), &first));
    for other in [
        InitInputs {
            engine: &newer,
            ..base
        },
        InitInputs {
            lock_file: Some(b""),
            ..base
        },
        InitInputs {
            lock_file: Some(b"x"),
            ..base
        },
        InitInputs {
            requirements: "a",
            backend: "bc",
            ..base
        },
    ] {
        assert!(
            !is_initialised(dir.path(), &fingerprint(&other)),
            "{other:?}"
        );
    }
    forget_initialised(dir.path()).unwrap();
    forget_initialised(dir.path()).unwrap();
    assert!(!is_initialised(dir.path(), &first));
}

#[test]
fn the_plugin_cache_has_one_user_at_a_time() {
    let cache = tempfile::tempdir().unwrap();
    let held = PluginCache::acquire(cache.path(), Flavor::Tofu).unwrap();
    let mut env = Environment::new();
    held.add_to(&mut env);
    let dir = env.get("TF_PLUGIN_CACHE_DIR").unwrap().expose();
    assert!(Path::new(dir).is_dir());
    let lock = fs::File::open(cache.path().join("plugins/tofu.lock")).unwrap();
    assert!(lock.try_lock().is_err());
    PluginCache::acquire(cache.path(), Flavor::Terraform).unwrap();
    drop(held);
    // Blocking: a process that another test starts holds inherited descriptors until its exec.
    lock.lock().unwrap();
}

#[test]
fn a_state_nobody_took_is_found() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(find_errored_state(dir.path()), None);
    let path = dir.path().join("errored.tfstate");
    fs::write(&path, "{}").unwrap();
    assert_eq!(find_errored_state(dir.path()), Some(path));
}
