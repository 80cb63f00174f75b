//! How a repository is reached: a path, HTTPS with a token, SSH with a key.
//!
//! Git gets a token as a header, through its environment. It gets a key in a file of mode 0600, which is removed
//! afterwards, at the latest when the home is next opened. Neither is ever part of an argument, an address or an
//! error. With a credential, none of the caller's own settings are used; without one, all of them are: agent and
//! helpers.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::base::error::{Explain, NextStep, advice};
use model::base::secret::Secret;

use crate::process::Environment;

/// A branch of a repository, and the credential for it.
#[derive(Clone, Debug)]
pub struct Remote {
    pub url: RemoteUrl,
    pub branch: String,
    pub credential: Option<GitCredential>,
}

/// The address of a repository. It never holds a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteUrl {
    text: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Path,
    Http { is_safe: bool },
    Ssh,
}

#[derive(Clone, Debug)]
pub enum GitCredential {
    /// `TOKEN` or `USER:TOKEN`.
    Token(Secret),
    /// A private key in the format of OpenSSH.
    SshKey(Secret),
}

impl GitCredential {
    pub fn new(secret: Secret) -> Self {
        if secret.expose().trim_start().starts_with("-----BEGIN") {
            Self::SshKey(secret)
        } else {
            Self::Token(secret)
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("`{url}` is not the address of a repository")]
    Url { url: String },
    #[error("the address of the repository contains a password")]
    PasswordInUrl,
    #[error("`{branch}` is not a valid branch name")]
    Branch { branch: String },
    #[error("cannot send a token to `{url}`: the connection is not encrypted")]
    ClearToken { url: String },
    #[error("`{url}` requires {wanted}, but the credential is {given}")]
    WrongKind {
        url: String,
        wanted: &'static str,
        given: &'static str,
    },
    #[error("cannot write the key of the repository to a file")]
    Key(#[source] io::Error),
}

impl Explain for AccessError {
    fn next_steps(&self) -> Vec<NextStep> {
        vec![advice(match self {
            Self::Url { .. } => {
                "write `https://…`, `ssh://…`, `git@host:path`, `file:///…` or a path"
            }
            Self::PasswordInUrl => "set it as `credential` of the `facts` block",
            Self::ClearToken { .. } => "use `https://`",
            Self::Branch { .. } | Self::WrongKind { .. } | Self::Key(_) => return Vec::new(),
        })]
    }
}

impl RemoteUrl {
    /// Parses the value of a `facts` block; a path is relative to the project's root.
    pub fn parse(raw: &str, root: &Path) -> Result<Self, AccessError> {
        let wrong = || AccessError::Url {
            url: raw.to_owned(),
        };
        if raw.is_empty() || raw.starts_with('-') || raw.chars().any(char::is_control) {
            return Err(wrong());
        }
        let new = |kind| Self {
            text: raw.to_owned(),
            kind,
        };
        if let Some((scheme, rest)) = raw.split_once("://") {
            let host = rest.split('/').next().unwrap_or_default();
            let user = host.rsplit_once('@').map(|(user, _)| user);
            if user.is_some_and(|user| user.contains(':')) {
                return Err(AccessError::PasswordInUrl);
            }
            let name = host.rsplit('@').next().unwrap_or_default();
            let is_near = ["localhost", "127.0.0.1", "[::1]"].iter().any(|near| {
                name == *near
                    || name
                        .strip_prefix(near)
                        .is_some_and(|port| port.starts_with(':'))
            });
            return match scheme {
                "https" => Ok(new(Kind::Http { is_safe: true })),
                "http" => Ok(new(Kind::Http { is_safe: is_near })),
                "ssh" | "git+ssh" => Ok(new(Kind::Ssh)),
                "file" => Ok(new(Kind::Path)),
                _ => Err(wrong()),
            };
        }
        // `NAME::…` would start a remote helper program.
        if raw.contains("::") {
            return Err(wrong());
        }
        // `git@host:path`, unless a slash comes before the colon.
        let is_scp = raw
            .split_once(':')
            .is_some_and(|(host, _)| !host.contains('/') && !host.is_empty());
        if is_scp {
            return Ok(new(Kind::Ssh));
        }
        let path = root.join(raw);
        Ok(Self {
            text: path.to_string_lossy().into_owned(),
            kind: Kind::Path,
        })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The path, if the repository is on this machine.
    pub fn local(&self) -> Option<&Path> {
        match self.kind {
            Kind::Path => {
                let path = self.text.strip_prefix("file://");
                Some(Path::new(path.unwrap_or(&self.text)))
            }
            Kind::Http { .. } | Kind::Ssh => None,
        }
    }
}

impl fmt::Display for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Variables of the caller's environment that Git always gets.
const TAKEN: [&str; 12] = [
    "PATH",
    "TMPDIR",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "GIT_SSL_CAINFO",
    "SSL_CERT_FILE",
];

/// Variables that Git gets only without a credential.
const TAKEN_WITHOUT_CREDENTIAL: [&str; 3] = ["HOME", "XDG_CONFIG_HOME", "SSH_AUTH_SOCK"];

/// Settings that override the caller's.
const SETTINGS: [(&str, &str); 9] = [
    ("core.hooksPath", "/dev/null"),
    // The cache can be rebuilt.
    ("core.fsync", "none"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("push.recurseSubmodules", "no"),
    ("push.gpgSign", "false"),
    ("push.followTags", "false"),
    // A redirect must not carry the token to another host.
    ("http.followRedirects", "false"),
];

/// The environment of every call, and the directory of the key.
pub(super) fn prepare(
    asker: &BTreeMap<String, String>,
    private: &Path,
    remote: &Remote,
) -> Result<(Environment, Option<KeyDir>), AccessError> {
    check_branch(&remote.branch)?;
    let url = &remote.url;
    let wrong_kind = |wanted, given| AccessError::WrongKind {
        url: url.text.clone(),
        wanted,
        given,
    };
    let mut settings: Vec<(String, String)> = SETTINGS
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let is_alone = remote.credential.is_some();
    let mut env: Environment = asker
        .iter()
        .filter(|(name, _)| {
            let name = name.as_str();
            TAKEN.contains(&name) || (!is_alone && TAKEN_WITHOUT_CREDENTIAL.contains(&name))
        })
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    env.set("LC_ALL", "C")
        .set("GIT_TERMINAL_PROMPT", "0")
        .set("GIT_DIR", ".")
        .set("GIT_ALLOW_PROTOCOL", "file:http:https:ssh")
        .set("GIT_SSH_VARIANT", "ssh");
    if is_alone {
        env.set("GIT_CONFIG_NOSYSTEM", "1")
            .set("GIT_CONFIG_GLOBAL", "/dev/null")
            .set("GIT_ASKPASS", "true");
        settings.push(("credential.helper".to_owned(), String::new()));
    }
    let mut key = None;
    match (&remote.credential, url.kind) {
        (None, Kind::Path | Kind::Http { .. }) | (Some(_), Kind::Path) => {}
        (None, Kind::Ssh) => {
            env.set("GIT_SSH_COMMAND", "ssh -o BatchMode=yes");
        }
        (Some(GitCredential::Token(token)), Kind::Http { is_safe: true }) => {
            let token = token.expose().trim();
            let pair = if token.contains(':') {
                token.to_owned()
            } else {
                // Forges only check the token; some require a non-empty user name.
                format!("x-access-token:{token}")
            };
            let header = format!("Authorization: Basic {}", STANDARD.encode(pair));
            settings.push(("http.extraHeader".to_owned(), header));
        }
        (Some(GitCredential::Token(_)), Kind::Http { is_safe: false }) => {
            return Err(AccessError::ClearToken {
                url: url.text.clone(),
            });
        }
        (Some(GitCredential::Token(_)), Kind::Ssh) => {
            return Err(wrong_kind("an SSH key", "a token"));
        }
        (Some(GitCredential::SshKey(_)), Kind::Http { .. }) => {
            return Err(wrong_kind("a token", "an SSH key"));
        }
        (Some(GitCredential::SshKey(secret)), Kind::Ssh) => {
            let (dir, command) = write_key(secret, private).map_err(AccessError::Key)?;
            env.set("GIT_SSH_COMMAND", command);
            key = Some(dir);
        }
    }
    env.set("GIT_CONFIG_COUNT", settings.len().to_string());
    for (index, (name, value)) in settings.into_iter().enumerate() {
        env.set(format!("GIT_CONFIG_KEY_{index}"), name);
        env.set(format!("GIT_CONFIG_VALUE_{index}"), value);
    }
    Ok((env, key))
}

/// The directory of a key. It is locked while its owner lives; an unlocked one is left over.
#[derive(Debug)]
pub(super) struct KeyDir {
    _dir: tempfile::TempDir,
    _held: File,
}

/// Prefix of the names of these directories.
const KEY_DIR: &str = "key-";

/// Writes the key to a file that only its owner can read. New host keys are remembered beside it, in `private`.
fn write_key(secret: &Secret, private: &Path) -> io::Result<(KeyDir, String)> {
    // Lock `private` so that no sweep runs between creating and locking the directory.
    let door = File::open(private)?;
    door.lock()?;
    sweep(private)?;
    let dir = tempfile::Builder::new()
        .prefix(KEY_DIR)
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(private)?;
    let held = File::open(dir.path())?;
    held.lock()?;
    drop(door);
    let path = dir.path().join("key");
    let mut options = File::options();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    // OpenSSH requires a newline at the end of a key.
    writeln!(file, "{}", secret.expose().trim_end())?;
    let known = private.join("known_hosts");
    let command = format!(
        "ssh -F /dev/null -i {} -o IdentitiesOnly=yes -o IdentityAgent=none -o BatchMode=yes \
         -o ConnectTimeout=20 -o StrictHostKeyChecking=accept-new -o UserKnownHostsFile={}",
        quoted(&path),
        quoted(&known),
    );
    let dir = KeyDir {
        _dir: dir,
        _held: held,
    };
    Ok((dir, command))
}

/// Removes keys left behind by killed processes. A key that cannot be removed now is tried again later.
pub fn sweep_keys(private: &Path) {
    if let Ok(door) = File::open(private)
        && door.try_lock().is_ok()
    {
        drop(sweep(private));
    }
}

fn sweep(private: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(private)? {
        let entry = entry?;
        let is_key = entry.file_name().to_string_lossy().starts_with(KEY_DIR);
        if is_key && File::open(entry.path())?.try_lock().is_ok() {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', r"'\''"))
}

/// Checks a branch name by Git's rules, without starting Git.
fn check_branch(branch: &str) -> Result<(), AccessError> {
    let is_bad = |c: char| c.is_control() || " ~^:?*[\\".contains(c);
    let is_good = !branch.is_empty()
        && !branch.starts_with(['-', '/', '.'])
        && !branch.ends_with(['/', '.'])
        && !branch.contains(is_bad)
        && !["..", "//", "@{", "/."]
            .iter()
            .any(|bad| branch.contains(bad))
        && !branch
            .split('/')
            .any(|part| part.strip_suffix(".lock").is_some());
    if is_good {
        return Ok(());
    }
    Err(AccessError::Branch {
        branch: branch.to_owned(),
    })
}

/// The next step for an error message of Git.
pub(super) fn advice_for(said: &str) -> Option<&'static str> {
    let knows = |words: &[&str]| words.iter().any(|word| said.contains(word));
    let hint = if knows(&["Host key verification failed"]) {
        "the server's key is not the one that was seen before: if that is right, remove it from `known_hosts` in the home"
    } else if knows(&[
        "Permission denied (publickey",
        "Authentication failed",
        "could not read Username",
        "403",
        "401",
    ]) {
        "the `credential` of the `facts` block must be a token or an SSH key that may push there"
    } else if knows(&[
        "does not appear to be a git repository",
        "not found",
        "does not exist",
    ]) {
        "`repository` of the `facts` block must name a repository that exists; make it with `git init --bare`, or at your forge"
    } else if knows(&[
        "Could not resolve host",
        "Connection refused",
        "Connection timed out",
    ]) {
        "the server cannot be reached from here"
    } else {
        return None;
    };
    Some(hint)
}
