//! `terrane token`

use control::Control;
use control::access::tokens::{self, TokenRequest};
use jiff::Timestamp;
use model::base::error::Explain;
use model::state::token::{Lifetime, StatePattern, Token, TokenScope};
use serde_json::json;

use crate::commands::open_control;
use crate::global::Global;
use crate::view::table::Table;
use crate::{CommandError, ExitStatus, Process, report};

/// Make, list and revoke tokens of a state server
///
/// Tokens are stored in the home that the server serves; changes take effect within a second.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane token create ci --states 'shop/*' --expires 90d --data DIR\n  \
    terrane token list --data DIR\n  terrane token revoke ci --data DIR"
)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, clap::Subcommand)]
enum TokenCommand {
    Create(CreateArgs),
    List(ListArgs),
    Revoke(RevokeArgs),
}

/// Make a token and print it, this once
///
/// Engines send it as the password of HTTP Basic, under any user name. Without `--read` or `--surgery` it may lock,
/// read and write.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  export TF_HTTP_PASSWORD=$(terrane token create laptop --data DIR)\n  \
    terrane token create dashboard --read --states '**' --data DIR\n  \
    terrane token create operator --surgery --expires 8h --data DIR"
)]
struct CreateArgs {
    /// Who uses it; records of actions show this name
    name: String,
    /// Which states: a pattern over `PROJECT/NAME`, or `NAME` for states of no project; `*` stops at `/`, `**` does not
    #[arg(long, value_name = "GLOB", default_value = "**")]
    states: String,
    /// It may only read
    #[arg(long, group = "scope")]
    read: bool,
    /// It may lock, read and write
    #[arg(long, group = "scope")]
    write: bool,
    /// It may also break the order of versions: `state push -force`, a migration over a state
    #[arg(long, group = "scope")]
    surgery: bool,
    /// How long it lives, such as `12h`, `90d` or `4w`; without it, until it is revoked
    #[arg(long, value_name = "SPAN")]
    expires: Option<String>,
}

/// List tokens: their states, rights and validity
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  terrane token list --data DIR")]
struct ListArgs {}

/// Revoke a token permanently
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  terrane token revoke ci --data DIR")]
struct RevokeArgs {
    name: String,
}

pub(crate) async fn token(
    args: TokenArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    match args.command {
        TokenCommand::Create(args) => create(args, global, process).await,
        TokenCommand::List(ListArgs {}) => list(global, process).await,
        TokenCommand::Revoke(args) => revoke(&args, global, process).await,
    }
}

async fn create(
    args: CreateArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let usage = |err: &dyn Explain| CommandError::from_error(err).status(ExitStatus::Usage);
    if args.states.is_empty() {
        return Err(CommandError::new("no state fits an empty pattern")
            .hint("`--states '**'` is every state")
            .status(ExitStatus::Usage));
    }
    let states: StatePattern = args.states.parse().map_err(|err| usage(&err))?;
    let lifetime = args.expires.as_deref().map(str::parse::<Lifetime>);
    let lifetime = lifetime.transpose().map_err(|err| usage(&err))?;
    let scope = match (args.read, args.surgery) {
        (true, _) => TokenScope::Read,
        (_, true) => TokenScope::Surgery,
        (false, false) => TokenScope::Write,
    };
    let control = open(global, process).await?;
    let wish = TokenRequest {
        name: args.name,
        states,
        scope,
        lifetime,
    };
    let secret = tokens::create(&control, &process.actor(), &wish)
        .await
        .map_err(|err| CommandError::from_error(&err))?;
    if global.json {
        report::json(&json!({ "name": wish.name, "token": secret.expose() }))?;
    } else {
        report::data(&format!("{}\n", secret.expose()))?;
    }
    Ok(ExitStatus::Done)
}

async fn list(global: &Global, process: &Process) -> Result<ExitStatus, CommandError> {
    let control = open(global, process).await?;
    let tokens = tokens::list(&control)
        .await
        .map_err(|err| CommandError::because("could not list the tokens", &err))?;
    let now = Timestamp::now();
    if global.json {
        let tokens: Vec<_> = tokens
            .iter()
            .map(|token| {
                json!({
                    "name": token.name, "states": token.states.as_str(), "scope": token.scope,
                    "created_at": token.created_at, "expires_at": token.expires_at,
                    "revoked_at": token.revoked_at, "valid": token.is_valid(now),
                    "created_by": token.created_by.as_ref().map(|actor| &actor.name),
                    "revoked_by": token.revoked_by.as_ref().map(|actor| &actor.name),
                })
            })
            .collect();
        report::json(&json!({ "tokens": tokens }))?;
        return Ok(ExitStatus::Done);
    }
    if tokens.is_empty() {
        report::say("There is no token yet. `terrane token create NAME` makes one.\n")?;
        return Ok(ExitStatus::Done);
    }
    let mut table = Table::new(["TOKEN", "SCOPE", "STATES", "MADE", "IN FORCE"]);
    for token in &tokens {
        table.row([
            token.name.clone(),
            token.scope.to_string(),
            token.states.as_str().to_owned(),
            day(token.created_at),
            in_force(token, now),
        ]);
    }
    report::data(&table.render(process.data_look(global)))?;
    Ok(ExitStatus::Done)
}

async fn revoke(
    args: &RevokeArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let control = open(global, process).await?;
    tokens::revoke(&control, &process.actor(), &args.name)
        .await
        .map_err(|err| CommandError::from_error(&err))?;
    if global.json {
        report::json(&json!({ "revoked": args.name }))?;
    } else {
        report::say(&format!("token `{}` is revoked\n", args.name))?;
    }
    Ok(ExitStatus::Done)
}

fn in_force(token: &Token, now: Timestamp) -> String {
    match (token.revoked_at, token.expires_at) {
        (Some(at), _) => format!("revoked {}", day(at)),
        (None, Some(end)) if end <= now => format!("expired {}", day(end)),
        (None, Some(end)) => format!("until {}", day(end)),
        (None, None) => "yes".to_owned(),
    }
}

fn day(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d").to_string()
}

/// Opens the home itself: its tokens do not belong to a project.
async fn open(global: &Global, process: &Process) -> Result<Control, CommandError> {
    let settings = process.settings(global)?;
    let Some(home) = settings.bare_home() else {
        return Err(CommandError::new("tokens belong to the home of a server")
            .hint("name its directory: `--data DIR` or `TERRANE_HOME`")
            .status(ExitStatus::Usage));
    };
    open_control(home, &settings, process, process.look(global)).await
}
