//! `terrane secret`: files of secrets, encrypted as SOPS does.

use std::fs::File;
use std::io::{self, BufRead as _, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use control::secrets::secret_files::{
    self, NewValue, Prompt, SecretFileError, SecretFileWrite, SecretFiles,
};
use model::base::secret::Secret;
use rustix::termios::{self, LocalModes, OptionalActions};
use serde_json::json;

use crate::global::Global;
use crate::{CommandError, ExitStatus, Process, report};

/// Work with files of secrets, compatible with SOPS
///
/// YAML, JSON, dotenv and INI files, encrypted for the age recipients that `.sops.yaml` names; the official `sops`
/// reads what this writes, and the other way round. The private key comes from `SOPS_AGE_KEY`, `SOPS_AGE_KEY_FILE`,
/// `~/.config/sops/age/keys.txt`, or an SSH key; plugins of age are on `PATH`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane secret edit secrets.sops.yaml\n  terrane secret set secrets.sops.yaml database.password\n  terrane secret decrypt secrets.sops.yaml --key database.password"
)]
pub(crate) struct SecretArgs {
    #[command(subcommand)]
    command: SecretCommand,
}

#[derive(Debug, clap::Subcommand)]
enum SecretCommand {
    Edit(EditArgs),
    Set(SetArgs),
    Encrypt(EncryptArgs),
    Decrypt(DecryptArgs),
    Rotate(RotateArgs),
    Exec(ExecArgs),
}

/// Open a file in clear in the editor, and encrypt it again when it is saved
///
/// The editor is `SOPS_EDITOR`, `VISUAL` or `EDITOR`. The clear text lies in memory, readable by you alone, and is
/// gone when the editor ends, or when this command is killed. Values that did not change keep their ciphertext.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane secret edit secrets.sops.yaml\n  EDITOR='code --wait' terrane secret edit secrets.sops.yaml"
)]
struct EditArgs {
    /// An encrypted file, or one that is to be made
    file: PathBuf,
}

/// Put one value into a file
///
/// The value is read from standard input or a file, never from the command line, where others could see it. It is
/// taken exactly as it comes: `echo` gives a line break at its end, `printf %s` gives none. What is typed at a terminal is
/// one line, without its end.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane secret set secrets.sops.yaml database.password\n  printf %s \"$(pwgen -s 32 1)\" | terrane secret set secrets.sops.yaml database.password\n  terrane secret set secrets.sops.yaml tls.key --value-file key.pem\n  echo '[1, 2]' | terrane secret set secrets.sops.yaml ports --typed"
)]
struct SetArgs {
    /// An encrypted file, or one that is to be made
    file: PathBuf,
    /// Where the value goes: keys between dots, such as `database.password` or `hosts.0.key`; a key that has dots itself
    /// stands in quotes: `data."tls.crt"`
    key: String,
    /// Read the value as JSON, so that it may be a number, a list or a map
    #[arg(long)]
    typed: bool,
    /// Take the value from this file, all of it
    #[arg(long, value_name = "PATH")]
    value_file: Option<PathBuf>,
    /// Replace a map or a list by this value, and lose what is in it
    #[arg(long)]
    force: bool,
}

/// Encrypt a plain file
///
/// The recipients come from the rule in the nearest `.sops.yaml` whose `path_regex` matches the file's name.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane secret encrypt secrets.yaml --output secrets.sops.yaml\n  terrane secret encrypt secrets.sops.yaml --in-place\n  terrane secret encrypt .env --recipient age1… --in-place"
)]
struct EncryptArgs {
    /// A plain file
    file: PathBuf,
    /// Encrypt for this public key of age, of a plugin or of SSH instead of those that `.sops.yaml` names; may be repeated
    #[arg(long, value_name = "KEY")]
    recipient: Vec<String>,
    /// Put the encrypted text in place of the plain one
    #[arg(long, short)]
    in_place: bool,
    /// Write the encrypted text to this file, whose name decides by which rule; the plain one stays
    #[arg(long, short, value_name = "PATH", conflicts_with = "in_place")]
    output: Option<PathBuf>,
}

/// Print a file in clear, or one value of it
///
/// Of several files, `--json` prints one document a line.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane secret decrypt secrets.sops.yaml\n  terrane secret decrypt secrets.sops.yaml --key database.password\n  terrane secret decrypt secrets.sops.yaml --in-place"
)]
struct DecryptArgs {
    /// Encrypted files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print only this value: keys between dots, such as `database.password`, `hosts.0.key` or `data."tls.crt"`
    #[arg(long, value_name = "KEY", conflicts_with = "in_place")]
    key: Option<String>,
    /// Put the plain text in place of the encrypted one
    #[arg(long, short)]
    in_place: bool,
}

/// Give files a new data key, and the recipients that `.sops.yaml` names now
///
/// Everything in them is encrypted again: a former recipient can open only old versions.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane secret rotate secrets.sops.yaml\n  terrane secret rotate $(git ls-files '*.sops.yaml')"
)]
struct RotateArgs {
    /// Encrypted files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Run a command with the values of a file in its environment
///
/// Top-level values become variables of the same name. A file with maps or lists is refused, as by `sops exec-env`,
/// unless `--flatten` joins their keys. Nothing is written to disk.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane secret exec .env.sops.env -- ./deploy.sh\n  terrane secret exec secrets.sops.yaml -- sh -c 'login \"$TOKEN\"'"
)]
struct ExecArgs {
    /// An encrypted file
    file: PathBuf,
    /// Give values in maps and lists, too: `database: {password: …}` as `database_password`
    #[arg(long)]
    flatten: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) async fn secret(
    args: SecretArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let files = SecretFiles::new(&process.env, &process.cwd).asking(Arc::new(ask));
    match args.command {
        SecretCommand::Edit(args) => edit(&args, &files, global, process).await,
        SecretCommand::Set(args) => set(&args, &files, global, process),
        SecretCommand::Encrypt(args) => encrypt(&args, &files, global),
        SecretCommand::Decrypt(args) => decrypt(&args, &files, global),
        SecretCommand::Rotate(args) => rotate(&args, &files, global, process),
        SecretCommand::Exec(args) => {
            let ended = files.exec(&args.file, args.flatten, &args.command).await;
            let exit = ended.map_err(|err| failed(&err))?;
            Ok(ExitStatus::Engine(exit.code().unwrap_or(1)))
        }
    }
}

async fn edit(
    args: &EditArgs,
    files: &SecretFiles<'_>,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let editing = files.edit(&args.file).map_err(|err| failed(&err))?;
    loop {
        let ended = files.run_editor(&editing).await;
        ended.map_err(|err| failed(&err).cause(untouched(&args.file)))?;
        match editing.save() {
            Ok(written) => return done(&args.file, &written, global),
            Err(err) => {
                let shown = failed(&err).cause(untouched(&args.file));
                if !process.stdin_is_terminal {
                    return Err(shown);
                }
                let _ = process.report(&shown);
                report::say("Press Enter to edit it again, Ctrl-C to leave it: ")?;
                let mut answer = String::new();
                let read = io::stdin().lock().read_line(&mut answer);
                if read.is_err() || answer.is_empty() {
                    return Err(CommandError::said(ExitStatus::Failed));
                }
            }
        }
    }
}

fn untouched(file: &Path) -> String {
    format!("`{}` is unchanged", file.display())
}

fn set(
    args: &SetArgs,
    files: &SecretFiles<'_>,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let value = match &args.value_file {
        Some(path) => {
            let text = std::fs::read_to_string(process.cwd.join(path)).map_err(|err| {
                CommandError::because(format!("could not read `{}`", path.display()), &err)
            })?;
            Secret::new(text)
        }
        None => read_value(&args.key, process)?,
    };
    let is_typed_in = args.value_file.is_none() && process.stdin_is_terminal;
    if value.expose().is_empty() && is_typed_in {
        return Err(CommandError::new("no value was given").status(ExitStatus::Usage));
    }
    if !args.typed && !global.json && is_line(&value) {
        report::say(
            "note: the value is one line with a line break at its end: `printf %s` gives none\n",
        )?;
    }
    let value = if args.typed {
        NewValue::Json(value)
    } else {
        NewValue::Text(value)
    };
    let written = files.set(&args.file, &args.key, &value, args.force);
    let written = written.map_err(|err| failed(&err))?;
    if global.json {
        let mut answer = document(&args.file, &written);
        answer["key"] = args.key.as_str().into();
        answer["new"] = written.is_new.into();
        report::json(&answer)?;
        return Ok(ExitStatus::Done);
    }
    if !written.changed {
        return done(&args.file, &written, global);
    }
    let did = if written.is_new { "new" } else { "replaced" };
    report::say(&format!(
        "`{}` is {did} in `{}`, for {}.\n",
        args.key,
        args.file.display(),
        people(&written)
    ))?;
    Ok(ExitStatus::Done)
}

/// Asks on the terminal itself, whatever standard input is; none if there is no terminal.
fn ask(question: &Prompt<'_>) -> Option<Secret> {
    let mut terminal = File::options()
        .read(true)
        .write(true)
        .open("/dev/tty")
        .ok()?;
    let is_seen = match question {
        Prompt::Message { plugin, words } => {
            writeln!(terminal, "{plugin}: {words}").ok()?;
            return Some(Secret::new(""));
        }
        Prompt::Passphrase { of } => {
            write!(terminal, "Passphrase of {of} (not shown): ").ok()?;
            false
        }
        Prompt::Secret { plugin, words } => {
            write!(terminal, "{plugin}: {words} (not shown): ").ok()?;
            false
        }
        Prompt::Text { plugin, words } => {
            write!(terminal, "{plugin}: {words}: ").ok()?;
            true
        }
    };
    let shown = termios::tcgetattr(&terminal).ok()?;
    if !is_seen {
        let mut hidden = shown.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        termios::tcsetattr(&terminal, OptionalActions::Now, &hidden).ok()?;
    }
    let mut line = String::new();
    let read = io::BufReader::new(&terminal).read_line(&mut line);
    if !is_seen {
        termios::tcsetattr(&terminal, OptionalActions::Now, &shown).ok();
        writeln!(terminal).ok();
    }
    read.ok()?;
    Some(Secret::new(line.strip_suffix('\n')?))
}

/// Whether the value is one line with a line break that the user may not have intended.
fn is_line(value: &Secret) -> bool {
    let line = value.expose().strip_suffix('\n');
    line.is_some_and(|line| !line.is_empty() && !line.contains('\n'))
}

/// Standard input as it is; from a terminal one line, which is not shown.
fn read_value(key: &str, process: &Process) -> Result<Secret, CommandError> {
    let failed = |err: io::Error| CommandError::because("could not read the value", &err);
    let mut text = String::new();
    if process.stdin_is_terminal {
        report::say(&format!("Value of `{key}` (not shown): "))?;
        let shown = termios::tcgetattr(io::stdin());
        if let Ok(shown) = &shown {
            let mut hidden = shown.clone();
            hidden.local_modes.remove(LocalModes::ECHO);
            // If echo cannot be turned off, the value is read anyway.
            termios::tcsetattr(io::stdin(), OptionalActions::Now, &hidden).ok();
        }
        let read = io::stdin().lock().read_line(&mut text);
        if let Ok(shown) = &shown {
            termios::tcsetattr(io::stdin(), OptionalActions::Now, shown).ok();
        }
        report::say("\n")?;
        read.map_err(failed)?;
        // The Enter that ended the line.
        if text.ends_with('\n') {
            text.pop();
        }
    } else {
        io::stdin()
            .lock()
            .read_to_string(&mut text)
            .map_err(failed)?;
    }
    Ok(Secret::new(text))
}

fn encrypt(
    args: &EncryptArgs,
    files: &SecretFiles<'_>,
    global: &Global,
) -> Result<ExitStatus, CommandError> {
    let encrypted = files.encrypt(&args.file, args.output.as_deref(), &args.recipient);
    let (text, rule) = encrypted.map_err(|err| {
        let shown = failed(&err);
        if err.is_no_rule() {
            return shown.hint("or name a recipient: `--recipient age1…`");
        }
        shown
    })?;
    let place = if args.in_place {
        let replaced = files.replace(&args.file, &text, false);
        replaced.map_err(|err| failed(&err))?;
        Some(&args.file)
    } else if let Some(output) = &args.output {
        files.create(output, &text).map_err(|err| failed(&err))?;
        Some(output)
    } else {
        None
    };
    if let Some(place) = place {
        let written = SecretFileWrite {
            changed: true,
            is_new: false,
            recipients: secret_files::names(&rule),
        };
        return done(place, &written, global);
    }
    if global.json {
        report::json(&json!({
            "file": args.file.display().to_string(),
            "recipients": secret_files::names(&rule),
            "text": text,
        }))?;
    } else {
        report::data(&text)?;
    }
    Ok(ExitStatus::Done)
}

fn decrypt(
    args: &DecryptArgs,
    files: &SecretFiles<'_>,
    global: &Global,
) -> Result<ExitStatus, CommandError> {
    let several = args.files.len() > 1;
    if several && !args.in_place && !global.json {
        return Err(CommandError::new("several files cannot be printed as one")
            .hint("`--json` prints one document a line, `--in-place` replaces each")
            .status(ExitStatus::Usage));
    }
    for path in &args.files {
        decrypt_one(path, args, files, global)?;
    }
    Ok(ExitStatus::Done)
}

fn decrypt_one(
    path: &Path,
    args: &DecryptArgs,
    files: &SecretFiles<'_>,
    global: &Global,
) -> Result<(), CommandError> {
    let file = path.display().to_string();
    let document = |value: &serde_json::Value| match args.files.len() {
        1 => report::json(value),
        _ => report::json_line(value),
    };
    if let Some(key) = &args.key {
        let value = files.value(path, key).map_err(|err| failed(&err))?;
        if global.json {
            return document(&json!({ "file": file, "key": key, "value": value.expose() }));
        }
        return report::data(&format!("{}\n", value.expose()));
    }
    let text = files.decrypt(path).map_err(|err| failed(&err))?;
    if args.in_place {
        let replaced = files.replace(path, text.expose(), true);
        replaced.map_err(|err| failed(&err))?;
        if global.json {
            return document(&json!({ "file": file, "encrypted": false }));
        }
        return report::say(&format!(
            "`{file}` is in clear now, readable by you alone.\n"
        ));
    }
    if global.json {
        return document(&json!({ "file": file, "text": text.expose() }));
    }
    report::data(text.expose())
}

fn rotate(
    args: &RotateArgs,
    files: &SecretFiles<'_>,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let mut left = Vec::new();
    for file in &args.files {
        let written = match files.rotate(file) {
            Ok(written) => written,
            Err(err) => {
                let shown = failed(&err);
                if args.files.len() == 1 {
                    return Err(shown);
                }
                // The other files are still rotated.
                let _ = process.report(&shown);
                left.push(format!("`{}`", file.display()));
                continue;
            }
        };
        if global.json {
            report::json_line(&document(file, &written))?;
        } else {
            report::say(&format!(
                "`{}` has a new data key, for {}.\n",
                file.display(),
                people(&written)
            ))?;
        }
    }
    if left.is_empty() {
        return Ok(ExitStatus::Done);
    }
    let (count, names) = (args.files.len(), left.join(", "));
    Err(CommandError::new(format!(
        "not rotated: {} of {count} files, {names}",
        left.len()
    )))
}

fn done(
    file: &Path,
    written: &SecretFileWrite,
    global: &Global,
) -> Result<ExitStatus, CommandError> {
    let shown = file.display();
    if global.json {
        report::json(&document(file, written))?;
    } else if written.changed {
        report::say(&format!(
            "`{shown}` is encrypted for {}.\n",
            people(written)
        ))?;
    } else {
        report::say(&format!("Nothing changed in `{shown}`.\n"))?;
    }
    Ok(ExitStatus::Done)
}

fn document(file: &Path, written: &SecretFileWrite) -> serde_json::Value {
    json!({
        "file": file.display().to_string(),
        "changed": written.changed,
        "recipients": written.recipients,
    })
}

fn people(written: &SecretFileWrite) -> String {
    match &written.recipients[..] {
        [one] => format!("`{one}`"),
        several => format!("{} recipients", several.len()),
    }
}

fn failed(err: &SecretFileError) -> CommandError {
    CommandError::from_error(err)
}
