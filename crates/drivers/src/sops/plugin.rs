//! Plugins of age: programs called `age-plugin-NAME` that keep keys elsewhere, for example on a hardware token.
//! They communicate over pipes (<https://c2sp.org/age-plugin>).
//!
//! The client of the `age` crate starts programs with our whole environment, so we use our own with `process`.

mod stanza;

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::io::{self, BufReader, Read as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use age::secrecy::ExposeSecret as _;
use age_core::format::{FileKey, Stanza as AgeStanza};
use age_core::primitives::{bech32_decode, bech32_encode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bech32::Hrp;
use model::base::error::{Explain, NextStep, advice};
use model::base::secret::Secret;
use zeroize::Zeroizing;

use super::identities::{Prompt, PromptFn};
use crate::process::{self, Environment};
use stanza::Stanza;

/// Time limit of a plugin; longer if a person may have to find a token.
const PATIENCE: Duration = Duration::from_mins(1);
const PATIENCE_WITH_PEOPLE: Duration = Duration::from_mins(5);

/// Limit for a plugin's output.
const LARGEST: u64 = 1 << 20;

/// How plugins are run: their environment, and the callback for their questions.
#[derive(Clone)]
pub struct Plugins {
    env: Environment,
    ask: Option<PromptFn>,
    limit: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum PluginError {
    #[error("there is no program `{program}` on `PATH`")]
    Missing { program: String },
    #[error("could not start the age plugin `{program}`")]
    Start { program: String, source: io::Error },
    #[error("the age plugin `{program}` ended unexpectedly")]
    BrokeOff { program: String, source: io::Error },
    #[error("the age plugin `{program}` did not finish within {} s", limit.as_secs())]
    Late { program: String, limit: Duration },
    #[error("the age plugin `{program}` reported: {words}")]
    Refused { program: String, words: String },
    #[error(
        "the age plugin `{program}` requests input, and there is no terminal to ask for it: {words}"
    )]
    NobodyToAsk { program: String, words: String },
    #[error("the age plugin `{program}` sent an unexpected message")]
    OutOfTurn { program: String },
}

impl Explain for PluginError {
    fn next_steps(&self) -> Vec<NextStep> {
        match self {
            Self::Missing { program } => vec![advice(format!(
                "install the age plugin `{program}`, and add its directory to `PATH`"
            ))],
            Self::NobodyToAsk { .. } => {
                vec![advice("use a key for runs that needs no interaction")]
            }
            _ => Vec::new(),
        }
    }
}

impl Plugins {
    /// Uses this environment without its private keys. Questions go to `ask`.
    pub fn new(environment: &BTreeMap<String, String>, ask: Option<PromptFn>) -> Self {
        let env = environment
            .iter()
            .filter(|(name, _)| *name != "SOPS_AGE_KEY")
            .collect();
        let limit = match ask {
            Some(_) => PATIENCE_WITH_PEOPLE,
            None => PATIENCE,
        };
        Self { env, ask, limit }
    }
}

impl Default for Plugins {
    /// Finds no plugins.
    fn default() -> Self {
        Self::new(&BTreeMap::new(), None)
    }
}

/// The plugin for a recipient such as `age1yubikey1…`.
pub(super) fn of_recipient(text: &str) -> Option<String> {
    name_in(text, |hrp| hrp.strip_prefix("age1").map(str::to_owned))
}

/// The plugin for an identity such as `AGE-PLUGIN-YUBIKEY-1…`.
fn of_identity(text: &str) -> Option<String> {
    name_in(text, |hrp| {
        let name = hrp.strip_prefix("AGE-PLUGIN-")?.strip_suffix('-')?;
        Some(name.to_lowercase())
    })
}

/// `AGE-SECRET-KEY-PQ-1…` as `AGE-PLUGIN-PQ-1…`.
fn for_plugin(text: &str) -> Option<Secret> {
    let bytes = bech32_decode(
        text,
        |_| (),
        |hrp| {
            (hrp.as_str() == "AGE-SECRET-KEY-PQ-")
                .then_some(())
                .ok_or(())
        },
        |_, bytes| Ok(Zeroizing::new(bytes.collect::<Vec<u8>>())),
    );
    let encoded = bech32_encode(Hrp::parse("age-plugin-pq-").ok()?, &bytes.ok()?);
    Some(Secret::new(Zeroizing::new(encoded).to_uppercase()))
}

fn name_in(text: &str, name: impl Fn(&str) -> Option<String>) -> Option<String> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || "+-._".contains(c);
    let name = bech32_decode(
        text,
        |_| (),
        |_| Ok(()),
        |hrp, _| name(hrp.as_str()).ok_or(()),
    );
    let name = name.ok()?;
    (!name.is_empty() && name.chars().all(is_fine)).then_some(name)
}

/// A plugin's recipient. A [`PluginError`] is wrapped in an I/O error.
pub(super) struct PluginRecipient<'p> {
    pub(super) name: String,
    pub(super) text: &'p str,
    pub(super) plugins: &'p Plugins,
}

impl age::Recipient for PluginRecipient<'_> {
    fn wrap_file_key(
        &self,
        file_key: &FileKey,
    ) -> Result<(Vec<AgeStanza>, HashSet<String>), age::EncryptError> {
        let wrapped = self.wrap(file_key);
        wrapped.map_err(|err| age::EncryptError::Io(io::Error::other(err)))
    }
}

impl PluginRecipient<'_> {
    fn wrap(&self, key: &FileKey) -> Result<(Vec<AgeStanza>, HashSet<String>), PluginError> {
        let mut talk = PluginSession::begin(&self.name, "recipient-v1", self.plugins)?;
        talk.say("add-recipient", &[self.text], &[])?;
        talk.say("wrap-file-key", &[], key.expose_secret())?;
        talk.say("extension-labels", &[], &[])?;
        talk.say("done", &[], &[])?;
        let mut stanzas = Vec::new();
        let mut labels = HashSet::new();
        while let Some(said) = talk.listen()? {
            match (said.tag.as_str(), &said.args[..]) {
                ("recipient-stanza", [file, tag, args @ ..]) if file == "0" => {
                    stanzas.push(AgeStanza {
                        tag: tag.clone(),
                        args: args.to_vec(),
                        body: said.body.to_vec(),
                    });
                    talk.say("ok", &[], &[])?;
                }
                ("labels", args) => {
                    labels.extend(args.iter().cloned());
                    talk.say("ok", &[], &[])?;
                }
                ("recipient-stanza", _) => return Err(talk.out_of_turn()),
                _ => talk.say("unsupported", &[], &[])?,
            }
        }
        if stanzas.is_empty() {
            return Err(talk.out_of_turn());
        }
        Ok((stanzas, labels))
    }
}

/// A plugin's private key, or its reference to one.
pub(super) struct PluginIdentity {
    name: String,
    text: Secret,
    plugins: Plugins,
}

impl PluginIdentity {
    /// `None` if the text is not a plugin identity. age's own post-quantum key counts as one: its plugin reads it.
    pub(super) fn new(text: &str, plugins: &Plugins) -> Option<Self> {
        let text = for_plugin(text).unwrap_or_else(|| Secret::new(text));
        Some(Self {
            name: of_identity(text.expose())?,
            text,
            plugins: plugins.clone(),
        })
    }

    fn unwrap(&self, stanzas: &[AgeStanza]) -> Result<Option<FileKey>, PluginError> {
        let mut talk = PluginSession::begin(&self.name, "identity-v1", &self.plugins)?;
        talk.say("add-identity", &[self.text.expose()], &[])?;
        for stanza in stanzas {
            let args = stanza.args.iter().map(String::as_str);
            let args: Vec<&str> = ["0", stanza.tag.as_str()].into_iter().chain(args).collect();
            talk.say("recipient-stanza", &args, &stanza.body)?;
        }
        talk.say("done", &[], &[])?;
        let mut key = None;
        while let Some(said) = talk.listen()? {
            match (said.tag.as_str(), &said.args[..]) {
                ("file-key", [file]) if file == "0" && key.is_none() => {
                    let found = FileKey::try_init_with_mut(|bytes| {
                        let is_whole = bytes.len() == said.body.len();
                        if is_whole {
                            bytes.copy_from_slice(&said.body);
                        }
                        is_whole.then_some(()).ok_or_else(|| talk.out_of_turn())
                    });
                    key = Some(found?);
                    talk.say("ok", &[], &[])?;
                }
                ("file-key", _) => return Err(talk.out_of_turn()),
                _ => talk.say("unsupported", &[], &[])?,
            }
        }
        Ok(key)
    }
}

impl age::Identity for PluginIdentity {
    fn unwrap_stanza(&self, stanza: &AgeStanza) -> Option<Result<FileKey, age::DecryptError>> {
        self.unwrap_stanzas(std::slice::from_ref(stanza))
    }

    fn unwrap_stanzas(&self, stanzas: &[AgeStanza]) -> Option<Result<FileKey, age::DecryptError>> {
        let opened = self.unwrap(stanzas).transpose()?;
        Some(opened.map_err(|err| age::DecryptError::Io(io::Error::other(err))))
    }
}

/// A session with a plugin, which ends when this is dropped.
struct PluginSession<'p> {
    program: String,
    child: Child,
    /// Taken on drop: closing it makes the plugin exit.
    out: Option<ChildStdin>,
    input: BufReader<io::Take<ChildStdout>>,
    plugins: &'p Plugins,
    /// A thread that ends a plugin at the time limit; it returns whether it did.
    watch: Option<(mpsc::Sender<()>, thread::JoinHandle<bool>)>,
}

impl<'p> PluginSession<'p> {
    fn begin(name: &str, with: &str, plugins: &'p Plugins) -> Result<Self, PluginError> {
        let program = format!("age-plugin-{name}");
        let path = plugins.env.get("PATH").map(Secret::expose);
        let found = process::find_program(&program, OsStr::new(path.unwrap_or_default()));
        let Some(found) = found else {
            return Err(PluginError::Missing { program });
        };
        // Not our working directory: a plugin must not run in the project.
        let dir = std::env::temp_dir();
        let mut command = process::command(&found, &dir, &plugins.env);
        command
            .arg(format!("--age-plugin={with}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let started = process::spawn_helper(&mut command).and_then(|mut child| {
            let out = child.stdin.take();
            let input = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
            Ok((child, out, BufReader::new(input.take(LARGEST))))
        });
        let (child, out, input) = started.map_err(|source| PluginError::Start {
            program: program.clone(),
            source,
        })?;
        let watch = Some(watch(child.id(), plugins.limit));
        Ok(Self {
            program,
            child,
            out,
            input,
            plugins,
            watch,
        })
    }

    fn say(&mut self, tag: &str, args: &[&str], body: &[u8]) -> Result<(), PluginError> {
        let written = match &mut self.out {
            Some(out) => stanza::write(out, tag, args, body),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        written.map_err(|source| self.broke_off(source))
    }

    /// The next message, or `None` at the end. Questions are answered here; a plugin's error becomes ours.
    fn listen(&mut self) -> Result<Option<Stanza>, PluginError> {
        loop {
            let said = stanza::read(&mut self.input).map_err(|source| self.broke_off(source))?;
            match said.tag.as_str() {
                "done" => return Ok(None),
                "error" => {
                    return Err(PluginError::Refused {
                        program: self.program.clone(),
                        words: words(&said.body),
                    });
                }
                "msg" | "confirm" | "request-public" | "request-secret" => self.answer(&said)?,
                _ => return Ok(Some(said)),
            }
        }
    }

    fn answer(&mut self, said: &Stanza) -> Result<(), PluginError> {
        let mut words = words(&said.body);
        if said.tag == "confirm" {
            words.push_str(&choice(&said.args).ok_or_else(|| self.out_of_turn())?);
        }
        let (plugin, words) = (self.program.as_str(), words.as_str());
        let question = match said.tag.as_str() {
            "msg" => Prompt::Message { plugin, words },
            "request-secret" => Prompt::Secret { plugin, words },
            _ => Prompt::Text { plugin, words },
        };
        let answer = self.plugins.ask.as_ref().and_then(|ask| ask(&question));
        match (said.tag.as_str(), answer) {
            ("msg", Some(_)) => self.say("ok", &[], &[]),
            // Reports to the plugin that its message could not be shown.
            ("msg", None) => self.say("fail", &[], &[]),
            (_, None) => Err(PluginError::NobodyToAsk {
                program: self.program.clone(),
                words: words.to_owned(),
            }),
            ("confirm", Some(answer)) => {
                let said = answer.expose().trim().to_lowercase();
                let chosen = ["y", "yes"].contains(&said.as_str());
                self.say("ok", &[if chosen { "yes" } else { "no" }], &[])
            }
            (_, Some(answer)) => self.say("ok", &[], answer.expose().as_bytes()),
        }
    }

    fn broke_off(&mut self, source: io::Error) -> PluginError {
        let program = self.program.clone();
        if self.end() {
            let limit = self.plugins.limit;
            return PluginError::Late { program, limit };
        }
        if source.kind() == io::ErrorKind::InvalidData {
            return PluginError::OutOfTurn { program };
        }
        PluginError::BrokeOff { program, source }
    }

    fn out_of_turn(&self) -> PluginError {
        PluginError::OutOfTurn {
            program: self.program.clone(),
        }
    }

    /// Ends the plugin. Returns whether it had exceeded its time limit.
    fn end(&mut self) -> bool {
        self.out.take();
        let Some((stop, watch)) = self.watch.take() else {
            return false;
        };
        // The plugin's result is no longer needed.
        let _ = process::interrupt(self.child.id());
        // The PID is valid until the plugin is reaped, and the watch thread ends before that.
        let _ = process::wait_unreaped(&self.child);
        drop(stop);
        let was_late = watch.join().unwrap_or_default();
        let _ = self.child.wait();
        was_late
    }
}

impl Drop for PluginSession<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

fn watch(pid: u32, limit: Duration) -> (mpsc::Sender<()>, thread::JoinHandle<bool>) {
    let (stop, stopped) = mpsc::channel();
    let watch = thread::spawn(move || {
        let is_late = stopped.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
        is_late && process::kill_group(pid).is_ok()
    });
    (stop, watch)
}

/// A plugin's text, safe for a terminal.
fn words(body: &[u8]) -> String {
    const MOST: usize = 500;
    let text = String::from_utf8_lossy(body);
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.trim().chars().map(plain).take(MOST).collect()
}

/// ` [y: insert it, n: skip it]`, from a plugin's names for the two answers.
fn choice(args: &[String]) -> Option<String> {
    let decoded = |arg: &String| Some(words(&STANDARD_NO_PAD.decode(arg).ok()?));
    Some(match args {
        [yes] => format!(" [y: {}]", decoded(yes)?),
        [yes, no] => format!(" [y: {}, n: {}]", decoded(yes)?, decoded(no)?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a shell script as a plugin and compares the outcome.
    #[track_caller]
    fn check(says: &str, expected: &str) {
        check_within(Duration::from_mins(1), says, expected);
    }

    #[track_caller]
    fn check_within(limit: Duration, says: &str, expected: &str) {
        let dir = tempfile::tempdir().unwrap();
        let script = format!("#!/bin/sh\nsed '/^-> done$/q' > /dev/null\n{says}\n");
        testkit::write_program(&dir.path().join("age-plugin-odd"), &script);
        let path = format!(
            "{}:{}",
            dir.path().display(),
            std::env::var("PATH").unwrap()
        );
        let env = BTreeMap::from([("PATH".to_owned(), path)]);
        let plugins = Plugins {
            limit,
            ..Plugins::new(&env, None)
        };
        let identity = PluginIdentity::new(ODD, &plugins).unwrap();
        let said = match identity.unwrap(&[]) {
            Ok(Some(_)) => "a key".to_owned(),
            Ok(None) => "no key".to_owned(),
            Err(err) => err.to_string(),
        };
        assert_eq!(said, expected);
    }

    const ODD: &str = "AGE-PLUGIN-ODD-1QQE5Y8TL";

    #[test]
    fn a_plugin_may_misbehave() {
        check("printf -- '-> done\\n\\n'", "no key");
        check(
            "exit 3",
            "the age plugin `age-plugin-odd` ended unexpectedly",
        );
        check(
            "printf 'hello\\n'",
            "the age plugin `age-plugin-odd` sent an unexpected message",
        );
        check(
            "printf -- '-> file-key 0\\nAAAA\\n'",
            "the age plugin `age-plugin-odd` sent an unexpected message",
        );
        check(
            "printf -- '-> error internal\\nbm8gdG9rZW4\\n'",
            "the age plugin `age-plugin-odd` reported: no token",
        );
        check(
            "printf -- '-> request-secret\\nUElO\\n'; cat",
            "the age plugin `age-plugin-odd` requests input, and there is no terminal to ask for it: PIN",
        );
        check_within(
            Duration::from_secs(1),
            "trap '' INT; while :; do sleep 1; done",
            "the age plugin `age-plugin-odd` did not finish within 1 s",
        );
    }
}
