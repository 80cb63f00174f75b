//! The official `sops` for tests, as the reference for reading and writing.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};

use crate::services::service::{command, program, run};

/// The official tool, with one key and the rules of a directory.
pub struct Sops {
    program: PathBuf,
    /// The variable that names the key file, and the file.
    key: (&'static str, PathBuf),
    path: OsString,
}

/// An age key pair, made by age's own tool.
pub struct AgeKey {
    pub recipient: String,
    pub identity: String,
}

impl AgeKey {
    pub fn generate() -> Self {
        Self::with(&[])
    }

    /// A post-quantum key: age's own tools support it, others by the plugin `age-plugin-pq`.
    pub fn post_quantum() -> Self {
        Self::with(&["-pq"])
    }

    fn with(args: &[&str]) -> Self {
        let keygen = program(
            "age-keygen",
            "TERRANE_TEST_AGE_KEYGEN",
            &["age-keygen/v1.3.2/age-keygen"],
        );
        let identity = run(command(keygen).args(args));
        let recipient = identity
            .lines()
            .find_map(|line| line.strip_prefix("# public key: "))
            .expect("age-keygen says the public key")
            .to_owned();
        Self {
            recipient,
            identity,
        }
    }

    /// The same key in the form that `age-plugin-pq` understands.
    #[must_use]
    pub fn for_plugin(&self) -> Self {
        let file = tempfile::NamedTempFile::new().expect("a file");
        self.save(file.path());
        let plugin = age_plugins().join("age-plugin-pq");
        Self {
            recipient: self.recipient.clone(),
            identity: run(command(plugin).arg("-identity").arg(file.path())),
        }
    }

    /// Writes the private key into a file that only its owner can read.
    pub fn save(&self, path: &Path) {
        fs::write(path, &self.identity).expect("a key file");
    }
}

/// The directory of a real age plugin: `age-plugin-pq`.
pub fn age_plugins() -> PathBuf {
    let plugin = program(
        "age-plugin-pq",
        "TERRANE_TEST_AGE_PLUGIN_PQ",
        &["age-plugin-pq/v1.3.2/age-plugin-pq"],
    );
    plugin.parent().expect("a directory").to_owned()
}

/// Creates an SSH key pair without a passphrase at `path`; returns the public key.
pub fn ssh_key(path: &Path, kind: &str) -> String {
    let mut keygen = command("ssh-keygen");
    keygen.args([
        "-q",
        "-t",
        kind,
        "-N",
        "",
        "-C",
        "somebody@example.io",
        "-f",
    ]);
    run(keygen.arg(path));
    let public = fs::read_to_string(path.with_extension("pub")).expect("a public key");
    public.trim().to_owned()
}

impl Sops {
    /// A tool that opens files with the key in `key`.
    pub fn with_key(key: &Path) -> Self {
        Self::with("SOPS_AGE_KEY_FILE", key)
    }

    /// A tool that opens files with the SSH key in `key`.
    pub fn with_ssh_key(key: &Path) -> Self {
        Self::with("SOPS_AGE_SSH_PRIVATE_KEY_FILE", key)
    }

    fn with(variable: &'static str, key: &Path) -> Self {
        Self {
            program: program("sops", "TERRANE_TEST_SOPS", &["sops/v3.13.3/sops"]),
            key: (variable, key.to_owned()),
            path: env::var_os("PATH").unwrap_or_default(),
        }
    }

    /// Sets its `PATH`.
    #[must_use]
    pub fn with_path(self, path: &OsStr) -> Self {
        Self {
            path: path.to_owned(),
            ..self
        }
    }

    /// Runs it in `dir`; it must succeed.
    pub fn run(&self, dir: &Path, args: &[&str]) -> String {
        run(&mut self.command(dir, args))
    }

    /// Runs it in `dir`; returns whether it succeeded, and its output.
    pub fn tries(&self, dir: &Path, args: &[&str]) -> (bool, String) {
        let output = self.command(dir, args).output().expect("sops runs");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        (output.status.success(), said)
    }

    fn command(&self, dir: &Path, args: &[&str]) -> std::process::Command {
        let mut command = command(&self.program);
        command
            .args(args.iter().map(OsStr::new))
            .current_dir(dir)
            .env_clear()
            .env("HOME", dir)
            .env("PATH", &self.path)
            .env(self.key.0, &self.key.1)
            .env("SOPS_DISABLE_VERSION_CHECK", "1");
        command
    }
}
