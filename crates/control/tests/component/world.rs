//! A project, its home and its runners, for one test.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use control::access::writers::Caller;
use control::changeset::prepare::{
    self, ChangeSetRequest, PrepareError, PrepareInputs, ResumeRequest,
};
use control::clock::Clock;
use control::decision::confirm::{self, ConfirmOutcome, ConfirmRequest, ConfirmResult};
use control::decision::{DecidingUser, DecisionError};
use control::home::master_keys::KeySource;
use control::home::{Home, HomeLocation};
use control::project::engines;
use control::project::open::{self, OpenProject, ProjectContext};
use control::request;
use control::run::launcher::RunnerLauncher;
use control::run::lock::{ClaimedRun, RunLock};
use control::schedule::{recovery, runner_process, scheduler};
use control::secrets::caller_env::CallerEnv;
use control::{Control, ProcessKind};
use jiff::SignedDuration;
use model::base::actor::Actor;
use model::base::ids::{ChangeSetId, RunId, StackName};
use model::project::Project;
use model::run::changeset::{Action, ChangeSet, Reopen, Status};
use model::run::{Outcome, Run, RunProblem, RunState};
use model::state::StateVersion;
use serde_json::{Value, json};
use testkit::write_program;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::endpoint::serve;

pub(crate) struct World {
    pub(crate) control: Control,
    pub(crate) clock: Clock,
    /// The environment of the person who asks.
    pub(crate) env: BTreeMap<String, String>,
    /// Claimed runs that no runner carries out yet.
    pub(crate) claimed: UnboundedReceiver<ClaimedRun>,
    /// The change sets that were performed as far as possible at least once.
    driven: BTreeSet<ChangeSetId>,
    dir: tempfile::TempDir,
}

/// The part of `terrane.hcl` that most tests share.
const HEAD: &str = r#"
project "demo" {
  id = "demo"
  engine "tofu" { version = "~> 1.11" }
}
layer "base" { order = 0 }
target "local" { writers = ["anyone"] }
"#;

/// The block of a stack in `stacks/NAME`, with these lines besides the required ones.
pub(crate) fn stack(name: &str, lines: &str) -> String {
    format!(
        "stack \"{name}\" {{\n  path = \"stacks/{name}\"\n  target = \"local\"\n  layer = \"base\"\n  {lines}\n}}\n"
    )
}

impl World {
    /// A project with the usual target `local`, and these blocks.
    pub(crate) async fn new(blocks: &str) -> Self {
        Self::with_file(&format!("{HEAD}\n{blocks}")).await
    }

    /// Stacks `a`, `b`, … in a row: each takes the output `id` of the one before it.
    pub(crate) async fn chain(names: &[&str]) -> Self {
        let mut blocks = String::new();
        let mut before: Option<&str> = None;
        for name in names {
            let inputs = before.map_or_else(String::new, |before| {
                format!("inputs = {{ up = stack.{before}.output.id }}")
            });
            blocks += &stack(name, &inputs);
            before = Some(name);
        }
        let world = Self::new(&blocks).await;
        for (index, name) in names.iter().enumerate() {
            let value = if index == 0 { "1" } else { "${var.up}" };
            world.script(
                name,
                &json!({"resources": {"r": value}, "outputs": {"id": "@r"}}),
            );
        }
        world
    }

    /// One stack `a` with one resource.
    pub(crate) async fn single() -> Self {
        Self::chain(&["a"]).await
    }

    pub(crate) async fn with_file(file: &str) -> Self {
        // Memory, if there is such a file system: these tests are not about disks.
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() {
            tempfile::tempdir_in(memory)
        } else {
            tempfile::tempdir()
        };
        let dir = dir.unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(path("bin")).unwrap();
        std::fs::create_dir_all(path("project")).unwrap();
        symlink(engine(), path("bin/tofu")).unwrap();
        std::fs::write(path("project/terrane.hcl"), file).unwrap();
        let home = Home::at(
            HomeLocation::Directory(path("home")),
            path("home"),
            KeySource::File(path("key")),
            "demo".to_owned(),
        );
        let opened = Control::open(home, ProcessKind::Client, PathBuf::new(), path("cache")).await;
        let (mut control, _) = opened.unwrap();
        let (launched, claimed) = mpsc::unbounded_channel();
        let clock = Clock::manual("2026-03-01T12:00:00Z".parse().unwrap());
        control.launcher = RunnerLauncher::Queue(launched);
        control.clock = clock.clone();
        let env = [
            ("PATH", path("bin").to_string_lossy().into_owned()),
            ("HOME", dir.path().to_string_lossy().into_owned()),
        ];
        Self {
            control,
            clock,
            env: env.map(|(name, value)| (name.to_owned(), value)).into(),
            claimed,
            driven: BTreeSet::new(),
            dir,
        }
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("project")
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.root().join(path)).unwrap()
    }

    /// Puts a shell script before the engine, which begins after these lines.
    pub(crate) fn before_engine(&self, lines: &str) {
        let text = format!("#!/bin/sh\n{lines}\nexec '{}' \"$@\"\n", engine().display());
        write_program(&self.dir.path().join("bin/tofu"), &text);
    }

    /// Makes the root module of a stack do this. Its variables and outputs are declared, as the script uses them.
    pub(crate) fn script(&self, stack: &str, script: &Value) {
        let text = script.to_string();
        let names = text
            .split("${var.")
            .skip(1)
            .filter_map(|rest| rest.split('}').next());
        let names: BTreeSet<&str> = names.collect();
        let mut module = String::from("resource \"terraform_data\" \"r\" {}\n");
        for name in names {
            writeln!(module, "variable \"{name}\" {{}}").unwrap();
        }
        for name in script["outputs"]
            .as_object()
            .into_iter()
            .flat_map(|outputs| outputs.keys())
        {
            let is_sensitive = script["sensitive"]
                .as_array()
                .is_some_and(|it| it.contains(&json!(name)));
            writeln!(
                module,
                "output \"{name}\" {{\n value = null\n sensitive = {is_sensitive}\n}}"
            )
            .unwrap();
        }
        self.write(&format!("stacks/{stack}/main.tf"), &module);
        self.write(&format!("stacks/{stack}/script.json"), &text);
    }

    /// The project as its files are now.
    pub(crate) fn open(&self) -> (OpenProject, Project) {
        let open = open::open(&self.root(), &self.env).unwrap();
        let words: Vec<String> = open
            .loaded
            .findings
            .iter()
            .map(|it| format!("{it:?}"))
            .collect();
        assert!(!open.loaded.has_errors(), "{}", words.join("\n"));
        let project = open.loaded.project.clone().unwrap();
        (open, project)
    }

    /// A request for these stacks; all of them, if none is named.
    pub(crate) fn request(&self, action: Action, stacks: &[&str]) -> ChangeSetRequest {
        let (_, project) = self.open();
        let mut stacks: BTreeSet<StackName> =
            stacks.iter().map(|name| name.parse().unwrap()).collect();
        if stacks.is_empty() {
            stacks = project.stacks.keys().cloned().collect();
        }
        ChangeSetRequest {
            action,
            stacks,
            in_any_case: BTreeSet::new(),
            auto_approve: false,
            parallelism: 4,
            destroy: false,
            refresh_only: false,
            pinned: None,
            no_state: false,
            keeps_plans: false,
            who: Caller::new(Actor::named("alice")),
            exec: None,
            may_keep_state: true,
            policy_override: None,
            exceptions: None,
        }
    }

    /// Stores a change set, without starting anything. Each request is made one second after the one before it.
    pub(crate) async fn begin(
        &mut self,
        request: &ChangeSetRequest,
    ) -> Result<ChangeSetId, PrepareError> {
        self.clock.advance(SignedDuration::from_secs(1));
        let (open, project) = self.open();
        let wishes = prepare::requirements(&project, &request.stacks);
        let path = self.env.get("PATH").map(std::ffi::OsStr::new);
        let engines = engines::find(wishes, path, &self.control.cache).unwrap();
        let begun = prepare::begin(PrepareInputs {
            control: &self.control,
            open: &open,
            project: &project,
            engines: &engines,
            env: &self.env,
            wanted: request,
        });
        Ok(begun.await?.id)
    }

    /// Stores a change set and carries it out as far as it goes.
    pub(crate) async fn start(&mut self, request: &ChangeSetRequest) -> ChangeSetId {
        let set = self.begin(request).await.unwrap();
        self.drive(set).await;
        set
    }

    pub(crate) async fn plan(&mut self, stacks: &[&str]) -> ChangeSetId {
        let request = self.request(Action::Plan, stacks);
        self.start(&request).await
    }

    /// An apply that waits for its confirmation.
    pub(crate) async fn apply(&mut self, stacks: &[&str]) -> ChangeSetId {
        let request = self.request(Action::Apply, stacks);
        self.start(&request).await
    }

    /// An apply that is confirmed in advance.
    pub(crate) async fn auto_apply(&mut self, stacks: &[&str]) -> ChangeSetId {
        let request = self.request(Action::Apply, stacks);
        self.start(&ChangeSetRequest {
            auto_approve: true,
            ..request
        })
        .await
    }

    pub(crate) async fn destroy(&mut self, stacks: &[&str]) -> ChangeSetId {
        let request = self.request(Action::Destroy, stacks);
        self.start(&ChangeSetRequest {
            auto_approve: true,
            ..request
        })
        .await
    }

    /// Performs what is possible now, and carries claimed runs out until none is left.
    pub(crate) async fn drive(&mut self, set: ChangeSetId) {
        self.driven.insert(set);
        self.step(set).await;
        self.carry_out().await;
    }

    pub(crate) async fn carry_out(&mut self) {
        loop {
            while let Ok(claimed) = self.claimed.try_recv() {
                self.carry_out_one(claimed).await;
            }
            match self.refused().await {
                Some(set) if self.wait_for_locks(set).await => self.step(set).await,
                _ => return,
            }
        }
    }

    /// A change set of which something could run and nothing does: a claim was refused, because a child of another
    /// test held a copy of the lock ([`Self::wait_for_locks`]).
    async fn refused(&self) -> Option<ChangeSetId> {
        for set in &self.driven {
            let status = self.set(*set).await.status;
            let mut runs = self.runs(*set).await.into_iter();
            if matches!(status, Status::Planning | Status::Confirmed)
                && !runs.any(|run| run.state.is_running())
            {
                return Some(*set);
            }
        }
        None
    }

    /// Waits until the locks of runs that nobody carries out are free: a child of another test that has just been
    /// forked may hold a copy of one for a moment. Returns false if that takes too long.
    pub(crate) async fn wait_for_locks(&self, set: ChangeSetId) -> bool {
        let end = Instant::now() + Duration::from_secs(5);
        for run in self.runs(set).await {
            while !run.state.is_running() && RunLock::is_held(&self.control.home, run.id) {
                if Instant::now() > end {
                    return false;
                }
                std::thread::yield_now();
            }
        }
        true
    }

    pub(crate) async fn carry_out_one(&self, claimed: ClaimedRun) {
        let set = self.control.set_of_run(claimed.run).await.unwrap();
        let caller = self.values(set.id).await;
        let done = runner_process::run_claimed(&self.control, claimed, &caller, serve).await;
        done.unwrap();
    }

    /// The next claimed run, as if its runner were killed before it began.
    pub(crate) fn lose_next(&mut self) -> RunId {
        let claimed = self.claimed.try_recv().expect("a claimed run");
        let run = claimed.run;
        drop(claimed);
        // A child of another test that has just been forked may hold a copy of the lock for a moment.
        while RunLock::is_held(&self.control.home, run) {
            std::thread::yield_now();
        }
        run
    }

    /// Performs what is possible now. Nobody carries out the claimed runs.
    pub(crate) async fn step(&mut self, set: ChangeSetId) {
        self.wait_for_locks(set).await;
        let caller = self.values(set).await;
        let done = scheduler::advance(&self.control, set, None, &caller, None).await;
        done.unwrap();
    }

    /// What the next client does first: it ends runs whose runners are lost.
    pub(crate) async fn recover(&self, set: ChangeSetId) {
        let set = self.set(set).await;
        recovery::recover(&self.control, &set).await.unwrap();
    }

    pub(crate) fn caller(&self) -> CallerEnv {
        let (open, _) = self.open();
        CallerEnv::gather(&self.env, &self.root(), &[], &open.loaded.secrets).unwrap()
    }

    /// What the runs of a change set take from the environment; the usual variables, if one that they need is missing.
    pub(crate) async fn values(&self, set: ChangeSetId) -> CallerEnv {
        let (open, _) = self.open();
        let gathered = prepare::gather_for(&self.control, &open, &self.env, set).await;
        gathered.unwrap().unwrap_or_else(|_| self.caller())
    }

    /// Confirms, and carries out what follows.
    pub(crate) async fn confirm(
        &mut self,
        set: ChangeSetId,
        actor: &str,
    ) -> Result<ConfirmResult, DecisionError> {
        let confirmed = self.confirm_as(set, actor).await?;
        self.carry_out().await;
        Ok(confirmed.result)
    }

    pub(crate) async fn confirm_as(
        &self,
        set: ChangeSetId,
        actor: &str,
    ) -> Result<ConfirmOutcome, DecisionError> {
        let (_, project) = self.open();
        let decider = DecidingUser {
            actor: &Actor::named(actor),
            env: &self.env,
            project: &project,
        };
        let request = ConfirmRequest { set, typed: &[] };
        let values = match self.control.change_set(set).await {
            Ok(_) => self.values(set).await,
            Err(_) => self.caller(),
        };
        confirm::confirm(&self.control, decider, request, &values).await
    }

    /// Reopens what is left of a stopped change set, and carries it out.
    pub(crate) async fn resume(
        &mut self,
        set: ChangeSetId,
        auto_approve: bool,
    ) -> Result<(), PrepareError> {
        let what = Reopen::Rest {
            moved: BTreeSet::new(),
        };
        self.reopen(set, what, auto_approve).await
    }

    /// Reopens one run with those that were skipped because of it, and carries them out.
    pub(crate) async fn retry(
        &mut self,
        set: ChangeSetId,
        stack: &str,
        auto_approve: bool,
    ) -> Result<(), PrepareError> {
        let what = Reopen::Run(self.run(set, stack).await.id);
        self.reopen(set, what, auto_approve).await
    }

    async fn reopen(
        &mut self,
        set: ChangeSetId,
        what: Reopen,
        auto_approve: bool,
    ) -> Result<(), PrepareError> {
        let (open, project) = self.open();
        let found = prepare::find_stopped(&self.control, &project, Some(set), what).await?;
        let wanted = ChangeSetRequest {
            auto_approve,
            in_any_case: found.left,
            stacks: found.stacks,
            ..self.request(found.set.request.action, &[])
        };
        let resumed = ResumeRequest {
            set: found.set,
            what: found.what,
            wanted,
        };
        let context = ProjectContext {
            open: &open,
            project: &project,
            env: &self.env,
        };
        request::resume(&self.control, context, resumed).await?;
        self.drive(set).await;
        Ok(())
    }

    pub(crate) async fn set(&self, set: ChangeSetId) -> ChangeSet {
        self.control.change_set(set).await.unwrap()
    }

    pub(crate) async fn runs(&self, set: ChangeSetId) -> Vec<Run> {
        self.control.runs(set).await.unwrap()
    }

    pub(crate) async fn run(&self, set: ChangeSetId, stack: &str) -> Run {
        let runs = self.runs(set).await;
        runs.into_iter()
            .find(|run| run.stack.as_str() == stack)
            .expect("a run of the stack")
    }

    /// Why the run of a stack failed, or is not done.
    pub(crate) async fn problem(&self, set: ChangeSetId, stack: &str) -> RunProblem {
        match self.run(set, stack).await.state {
            RunState::Finished {
                outcome: Outcome::Failed { problem } | Outcome::NotDone { problem, .. },
                ..
            } => problem,
            state => panic!("the run of `{stack}` has no problem: {state:?}"),
        }
    }

    /// `finished: a applied, b unchanged`
    pub(crate) async fn summary(&self, set: ChangeSetId) -> String {
        let status = self.set(set).await.status.word();
        let runs = self.runs(set).await;
        let runs: Vec<String> = runs
            .iter()
            .map(|run| format!("{} {}", run.stack, run.state.word()))
            .collect();
        format!("{status}: {}", runs.join(", "))
    }

    /// The newest version of a stack's state.
    pub(crate) async fn head(&self, stack: &str) -> Option<StateVersion> {
        self.control
            .state_head(&self.control.state_name(stack))
            .await
            .unwrap()
    }

    /// The serial of a stack's state; 0 if there is none.
    pub(crate) async fn serial(&self, stack: &str) -> u64 {
        self.head(stack).await.map_or(0, |head| head.serial)
    }
}

/// The stand-in for an engine, built with the tests.
fn engine() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let dir = test.parent().and_then(Path::parent).unwrap();
    let engine = dir.join("scripted-engine");
    assert!(
        engine.is_file(),
        "no scripted engine beside the tests: `cargo build --workspace --bins` builds it"
    );
    engine
}
