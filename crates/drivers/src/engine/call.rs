//! Engine calls as data, and the command line for each.
//!
//! Every form is tested against both engines in `tests`. The differences:
//!
//! | | tofu | terraform |
//! |---|---|---|
//! | `-var-file` for `init`, `show`, `output`, `validate` | yes: sources, backends and encryption may use variables | refused |
//! | `-var-file` with a saved plan | must repeat the plan's values | the same (1.11); other values are refused |
//! | `providers lock` with a plugin cache | always | `-enable-plugin-cache` |

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use model::project::engine::Flavor;
use model::run::exec::{Exec, ExecKind};

/// One call of an engine.
#[derive(Clone, Debug)]
pub enum EngineCall<'a> {
    Init(InitCall<'a>),
    /// Exit code 0: nothing changes, 2: something does, 1: it failed.
    Plan(PlanCall<'a>),
    /// The plan file as JSON, with sensitive values in clear, for `model::plan::parse`.
    Show {
        plan: &'a Path,
        var_files: &'a [PathBuf],
    },
    /// `var_files` are those of the plan: tofu requires the same values again.
    Apply {
        plan: &'a Path,
        var_files: &'a [PathBuf],
    },
    /// All outputs of the state as JSON, sensitive ones in clear.
    Output {
        var_files: &'a [PathBuf],
    },
    /// The decrypted state from the backend; empty output if there is none.
    StatePull {
        var_files: &'a [PathBuf],
    },
    /// Takes the backend's lock, and checks lineage and serial unless forced.
    StatePush {
        file: &'a Path,
        force: bool,
        var_files: &'a [PathBuf],
    },
    /// Removes the lock with that id, whichever client holds it.
    ForceUnlock {
        id: &'a str,
        var_files: &'a [PathBuf],
    },
    Validate {
        var_files: &'a [PathBuf],
    },
    Fmt(FmtCall<'a>),
    /// A command that a person entered, already checked.
    Exec {
        exec: &'a Exec,
        var_files: &'a [PathBuf],
    },
    /// Completes `.terraform.lock.hcl` for these platforms, such as `linux_amd64`.
    ProvidersLock {
        platforms: &'a [String],
    },
}

impl EngineCall<'_> {
    /// Whether the call changes nothing but its own directory: no resource and no state.
    pub fn only_reads(&self) -> bool {
        match self {
            Self::Init(_)
            | Self::Plan(_)
            | Self::Show { .. }
            | Self::Output { .. }
            | Self::StatePull { .. }
            | Self::Validate { .. }
            | Self::Fmt(_)
            | Self::ProvidersLock { .. } => true,
            Self::Apply { .. }
            | Self::StatePush { .. }
            | Self::ForceUnlock { .. }
            | Self::Exec { .. } => false,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct InitCall<'a> {
    pub lock_file: LockFileMode,
    /// Backend settings. The engine stores them in clear in `.terraform` and in plan files: no credentials.
    pub backend_config: &'a [(String, String)],
    pub var_files: &'a [PathBuf],
    /// False to fetch only modules and providers, for `validate` and `providers lock`.
    pub backend: bool,
}

/// What `init` may do to `.terraform.lock.hcl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockFileMode {
    /// It must already contain every required entry.
    Readonly,
    /// Missing entries are added.
    Completed,
    /// Upgrades to the newest versions that the constraints allow.
    Upgraded,
}

#[derive(Clone, Copy, Debug)]
pub struct PlanCall<'a> {
    pub out: &'a Path,
    pub mode: PlanMode,
    pub var_files: &'a [PathBuf],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanMode {
    #[default]
    Normal,
    Destroy,
    RefreshOnly,
    /// Skip reading the real resources.
    NoRefresh,
}

#[derive(Clone, Copy, Debug)]
pub enum FmtCall<'a> {
    /// From stdin to stdout.
    Stdin,
    /// Lists files that are not in canonical form, exit code 3 if there are any.
    Check { paths: &'a [PathBuf] },
    /// Rewrites the files that are not in canonical form, and lists them.
    Write { paths: &'a [PathBuf] },
}

impl EngineCall<'_> {
    /// The command line after the program's name.
    pub fn args(&self, flavor: Flavor) -> Vec<OsString> {
        let mut line = CommandLine::default();
        match self {
            Self::Init(init) => init.write(&mut line, flavor),
            Self::Plan(plan) => plan.write(&mut line),
            Self::Show { plan, var_files } => {
                line.words(&["show", "-json"]);
                line.early_var_files(flavor, var_files);
                line.word(plan);
            }
            Self::Apply { plan, var_files } => {
                line.words(&["apply", "-json", "-input=false"]);
                line.var_files(var_files);
                line.word(plan);
            }
            Self::Output { var_files } => {
                line.words(&["output", "-json"]);
                line.early_var_files(flavor, var_files);
            }
            Self::StatePull { var_files } => {
                line.words(&["state", "pull"]);
                line.early_var_files(flavor, var_files);
            }
            Self::StatePush {
                file,
                force,
                var_files,
            } => {
                line.words(&["state", "push"]);
                if *force {
                    line.words(&["-force"]);
                }
                line.early_var_files(flavor, var_files);
                line.word(file);
            }
            Self::ForceUnlock { id, var_files } => {
                line.words(&["force-unlock", "-force"]);
                line.early_var_files(flavor, var_files);
                line.word(id);
            }
            Self::Validate { var_files } => {
                line.words(&["validate", "-json"]);
                line.early_var_files(flavor, var_files);
            }
            Self::Fmt(fmt) => fmt.write(&mut line),
            Self::Exec { exec, var_files } => write_exec(exec, var_files, &mut line, flavor),
            Self::ProvidersLock { platforms } => {
                line.words(&["providers", "lock", "-no-color"]);
                if providers_lock_asks_for_the_cache(flavor) {
                    line.words(&["-enable-plugin-cache"]);
                }
                for platform in *platforms {
                    line.word(format!("-platform={platform}"));
                }
            }
        }
        line.0
    }
}

impl InitCall<'_> {
    fn write(&self, line: &mut CommandLine, flavor: Flavor) {
        // A slot never holds a state to migrate.
        line.words(&["init", "-json", "-input=false", "-reconfigure"]);
        match self.lock_file {
            LockFileMode::Readonly => line.words(&["-lockfile=readonly"]),
            LockFileMode::Completed => {}
            LockFileMode::Upgraded => line.words(&["-upgrade"]),
        }
        if !self.backend {
            line.words(&["-backend=false"]);
        }
        for (name, value) in self.backend_config {
            line.word(format!("-backend-config={name}={value}"));
        }
        line.early_var_files(flavor, self.var_files);
    }
}

impl PlanCall<'_> {
    fn write(&self, line: &mut CommandLine) {
        line.words(&["plan", "-json", "-input=false", "-lock=false"]);
        line.words(&["-detailed-exitcode"]);
        match self.mode {
            PlanMode::Normal => {}
            PlanMode::Destroy => line.words(&["-destroy"]),
            PlanMode::RefreshOnly => line.words(&["-refresh-only"]),
            PlanMode::NoRefresh => line.words(&["-refresh=false"]),
        }
        line.file("-out", self.out);
        line.var_files(self.var_files);
    }
}

impl FmtCall<'_> {
    fn write(&self, line: &mut CommandLine) {
        match self {
            Self::Stdin => line.words(&["fmt", "-no-color", "-"]),
            Self::Check { paths } => {
                line.words(&["fmt", "-no-color", "-check", "-recursive"]);
                paths.iter().for_each(|path| line.word(path));
            }
            Self::Write { paths } => {
                line.words(&["fmt", "-no-color", "-recursive"]);
                paths.iter().for_each(|path| line.word(path));
            }
        }
    }
}

fn write_exec(exec: &Exec, var_files: &[PathBuf], line: &mut CommandLine, flavor: Flavor) {
    exec.command.iter().for_each(|word| line.word(word));
    match exec.kind {
        ExecKind::Read => {}
        // The output goes to files, and there is no terminal for prompts.
        ExecKind::Write => line.words(&["-no-color"]),
    }
    if exec.takes_variables() {
        line.var_files(var_files);
    } else {
        line.early_var_files(flavor, var_files);
    }
    exec.args.iter().for_each(|word| line.word(word));
}

fn takes_variables_early(flavor: Flavor) -> bool {
    match flavor {
        Flavor::Tofu => true,
        Flavor::Terraform => false,
    }
}

fn providers_lock_asks_for_the_cache(flavor: Flavor) -> bool {
    match flavor {
        Flavor::Tofu => false,
        Flavor::Terraform => true,
    }
}

#[derive(Default)]
struct CommandLine(Vec<OsString>);

impl CommandLine {
    fn word(&mut self, word: impl Into<OsString>) {
        self.0.push(word.into());
    }

    fn words(&mut self, words: &[&str]) {
        self.0.extend(words.iter().map(OsString::from));
    }

    fn file(&mut self, option: &str, path: &Path) {
        let mut word = OsString::from(option);
        word.push("=");
        word.push(path);
        self.0.push(word);
    }

    fn var_files(&mut self, files: &[PathBuf]) {
        for file in files {
            self.file("-var-file", file);
        }
    }

    fn early_var_files(&mut self, flavor: Flavor, files: &[PathBuf]) {
        if takes_variables_early(flavor) {
            self.var_files(files);
        }
    }
}
