//! What the stories share: projects of small stacks whose resources note that they were made, and wait
//! where the story needs time to stand still.

use std::fmt::Write as _;
use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::{CommandOutput, TestTerrane, command_output, engines};

pub(crate) use crate::project::terrane;

/// A project made stack by stack. In modules, `ROOT` is a directory outside the project.
pub(crate) struct Story {
    terrane: TestTerrane,
    file: String,
}

impl Deref for Story {
    type Target = TestTerrane;

    fn deref(&self) -> &TestTerrane {
        &self.terrane
    }
}

impl Story {
    pub(crate) fn new(engine: &str) -> Self {
        Self::on(terrane(), engine)
    }

    /// With a project file of its own and an environment of its own.
    pub(crate) fn on(terrane: TestTerrane, engine: &str) -> Self {
        let file = format!(
            "project \"story\" {{\n  engine \"{engine}\" {{ version = \"~> 1.11\" }}\n}}\n\
             layer \"all\" {{ order = 0 }}\n\
             target \"local\" {{ writers = [\"anyone\"] }}\n"
        );
        Self { terrane, file }
    }

    /// Adds to the project file.
    pub(crate) fn block(mut self, text: &str) -> Self {
        self.file.push_str(text);
        self.file.push('\n');
        self.write("terrane.hcl", &self.file);
        self
    }

    /// Adds a stack on the target `local` with a module of its own; `attributes` go into its block.
    pub(crate) fn stack(self, name: &str, attributes: &str, module: &str) -> Self {
        self.stack_on("local", name, attributes, module)
    }

    pub(crate) fn stack_on(self, target: &str, name: &str, attributes: &str, module: &str) -> Self {
        self.module(name, module);
        self.block(&format!(
            "stack \"{name}\" {{\n  path = \"{name}\"\n  target = \"{target}\"\n  layer = \"all\"\n  {attributes}\n}}"
        ))
    }

    /// Writes the module of a stack.
    pub(crate) fn module(&self, stack: &str, text: &str) {
        let text = text.replace("ROOT", &self.root().display().to_string());
        self.write(&format!("{stack}/main.tf"), &text);
    }

    /// Lets a resource that waits go on.
    pub(crate) fn open(&self, gate: &str) {
        fs::write(self.root().join(format!("{gate}.go")), "").unwrap();
    }

    /// Waits until a resource is being made.
    #[track_caller]
    pub(crate) fn wait_for(&self, gate: &str) {
        self.wait_until(&format!("the start of {gate}"), || self.has_started(gate));
    }

    pub(crate) fn has_started(&self, gate: &str) -> bool {
        self.root().join(format!("{gate}.started")).exists()
    }

    /// Puts a script in the place of OpenTofu. `REAL` is the real one; `WAIT(name)` says that it waits and
    /// goes on when the gate is open.
    pub(crate) fn engine_script(&self, text: &str) {
        let mut text = text.replace("REAL", &engines::tofu().display().to_string());
        while let Some((before, rest)) = text.split_once("WAIT(") {
            let (name, after) = rest.split_once(')').expect("a name");
            text = format!("{before}{}{after}", wait(name));
        }
        let text = text.replace("ROOT", &self.root().display().to_string());
        let program = self.root().join("bin/tofu");
        testkit::write_program(&program, &format!("#!/bin/sh\n{text}"));
    }

    /// What was made so far, in that order.
    pub(crate) fn made(&self) -> Vec<String> {
        let text = fs::read_to_string(self.root().join("made")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The data of this project in its home.
    pub(crate) fn data(&self) -> PathBuf {
        data_of(self).expect("the project has a home")
    }

    pub(crate) fn runner(&self, run: &str) -> u32 {
        let lock = self.data().join("runs").join(run).join("run.lock");
        let mut pid = None;
        self.wait_until("a signed lock", || {
            let text = fs::read_to_string(&lock).unwrap_or_default();
            pid = signed(&text, 0);
            pid.is_some()
        });
        pid.expect("a process")
    }

    /// The runner that holds a run now, if there is one.
    pub(crate) fn live_runner(&self, run: &str) -> Option<u32> {
        let lock = data_of(self)?.join("runs").join(run).join("run.lock");
        let file = fs::File::open(&lock).ok()?;
        file.try_lock_shared().err()?;
        signed(&fs::read_to_string(&lock).ok()?, 0)
    }

    /// The engine of a run that is at work now, if there is one.
    pub(crate) fn live_engine(&self, run: &str) -> Option<u32> {
        self.live_runner(run)?;
        let lock = self.data().join("runs").join(run).join("run.lock");
        signed(&fs::read_to_string(lock).ok()?, 1)
    }

    /// Ends the engine of a run as nobody should: with everything it has started.
    pub(crate) fn kill_engine(&self, run: &str) {
        let pid = self.live_engine(run).expect("an engine at work");
        let killed = self.shell(&format!("kill -s KILL -- -{pid}"));
        let _ = killed.expect(0);
    }

    /// Waits until no runner and no engine is at work.
    #[track_caller]
    pub(crate) fn settle(&self) {
        self.wait_until("the end of all runners", || !is_busy(self));
    }
}

/// A number of those that stand in a run's lock: the runner's, and the engine's.
fn signed(lock: &str, line: usize) -> Option<u32> {
    lock.lines().nth(line)?.trim().parse().ok()
}

impl Drop for Story {
    /// Runners still tidy up when the terminal has its answer already; what they write to must not go.
    fn drop(&mut self) {
        let may_go = || !is_busy(self) || std::thread::panicking();
        testkit::is_true_within(Duration::from_secs(5), may_go);
    }
}

pub(crate) fn is_busy(terrane: &TestTerrane) -> bool {
    let Some(runs) = data_of(terrane).and_then(|data| fs::read_dir(data.join("runs")).ok()) else {
        return false;
    };
    runs.flatten()
        .filter_map(|run| fs::File::open(run.path().join("run.lock")).ok())
        .any(|lock| lock.try_lock_shared().is_err())
}

fn data_of(terrane: &TestTerrane) -> Option<PathBuf> {
    let entry = fs::read_dir(terrane.home().join("projects"))
        .ok()?
        .flatten()
        .next()?;
    Some(entry.path())
}

/// A resource that notes that it was made.
pub(crate) fn noted(name: &str) -> String {
    resource(name, "", &format!("echo {name} >> ROOT/made"))
}

/// A resource that says it has begun, and is made only when its gate is open. A test that fails takes
/// `ROOT` away, which opens every gate.
pub(crate) fn gated(name: &str, after: &str) -> String {
    let command = format!("{}; echo {name} >> ROOT/made", wait(name));
    resource(name, after, &command)
}

/// In the words of a shell.
fn wait(gate: &str) -> String {
    format!(
        "touch ROOT/{gate}.started; while [ -d ROOT ] && [ ! -e ROOT/{gate}.go ]; do sleep 0.05; done"
    )
}

/// A resource with a provisioner; `extra` are further arguments.
pub(crate) fn resource(name: &str, extra: &str, command: &str) -> String {
    format!(
        "resource \"terraform_data\" \"{name}\" {{\n  input = \"{name}\"\n  {extra}\n  provisioner \"local-exec\" {{\n    \
         command = \"{}\"\n  }}\n}}\n",
        command.replace('"', "\\\"")
    )
}

/// A module that notes itself, takes the value of an upstream, and gives one on.
pub(crate) fn link(name: &str) -> String {
    let mut text = noted(name);
    text.push_str("variable \"from\" {\n  type    = string\n  default = \"nobody\"\n}\n");
    write!(
        text,
        "output \"name\" {{ value = \"{name} after ${{var.from}}\" }}\noutput \"id\" {{ value = terraform_data.{name}.id }}\n"
    )
    .unwrap();
    text
}

/// The attribute that makes a stack take the name of another.
pub(crate) fn takes(upstream: &str) -> String {
    format!("inputs = {{ from = stack.{upstream}.output.name }}")
}

/// What stays the same however fast the engines are: the title, ends of stacks in a fixed order, and
/// everything after the last end.
pub(crate) fn essence(said: &CommandOutput) -> String {
    let text = command_output::level(&said.stderr);
    let is_progress = |line: &&str| line.starts_with("00:00  ");
    let mut ends: Vec<&str> = text
        .lines()
        .filter(is_progress)
        .map(|line| line.trim_start_matches("00:00  "))
        .filter(|line| !line.starts_with('●') && !line.starts_with('○'))
        // Whether it is seen between its plan and its apply is a matter of time.
        .filter(|line| !line.contains("   planned "))
        .collect();
    ends.sort_unstable();
    let title: Vec<&str> = text.lines().take(1).collect();
    let rest: Vec<&str> = text
        .lines()
        .skip(1)
        .filter(|line| !is_progress(line))
        .collect();
    let code = said
        .code
        .map_or("killed".to_owned(), |code| code.to_string());
    format!(
        "{}\n{}\n{}\n[exit {code}]",
        title.join("\n"),
        ends.join("\n"),
        rest.join("\n")
    )
}

/// Every file below a directory; none if it is not there.
pub(crate) fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Files of the home, or of the memory of runs, that hold a text in clear.
pub(crate) fn holding(terrane: &TestTerrane, secret: &str) -> Vec<PathBuf> {
    assert!(secret.len() > 7, "{secret:?} is no secret");
    let mut all = files(&terrane.home());
    for entry in fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("terrane-") {
            all.extend(files(&entry.path()));
        }
    }
    let holds = |path: &PathBuf| {
        let bytes = fs::read(path).unwrap_or_default();
        bytes
            .windows(secret.len())
            .any(|at| at == secret.as_bytes())
    };
    all.into_iter().filter(holds).collect()
}
