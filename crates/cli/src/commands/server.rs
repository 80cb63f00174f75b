//! `terrane server`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use control::ProcessKind;
use control::state::client_access::StateService;
use control::state::queries::retention_job::{self, RetentionError, RetentionReport};
use model::state::retention::RetentionPolicy;
use model::state::token::Lifetime;
use serde_json::json;
use server::StateServer;
use server::http::{Limits, Tls, TlsFiles};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::filter::LevelFilter;

use super::open_control_for;
use crate::global::Global;
use crate::{CommandError, ExitStatus, Process, report};

/// Serve states over HTTP to OpenTofu, Terraform and other clients of their protocol
///
/// Serves all states of a home that the client's token covers; the first write creates a state. Requests are logged as
/// JSON lines on standard error, without secrets, queries or bodies. SIGHUP reloads the certificate (so does a change of
/// its files). SIGTERM or Ctrl-C stops accepting, finishes running requests and exits; a second one exits at once.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane server --data /var/lib/terrane --listen 127.0.0.1:8080\n  \
    terrane server --data /var/lib/terrane --listen 0.0.0.0:8443 --tls-cert tls.crt --tls-key tls.key\n  \
    terrane server --data DIR --listen 127.0.0.1:0 --json     # prints the port it got\n\n\
    Then make a token: `terrane token create ci --data DIR`."
)]
pub(crate) struct ServerArgs {
    /// Address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The server's certificate chain (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Require client certificates signed by one of these, in addition to a token (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    client_ca: Option<PathBuf>,
    /// Serve other machines without TLS, for use behind a proxy that terminates TLS
    #[arg(long, conflicts_with = "tls_cert")]
    allow_plain_http: bool,
    /// Largest accepted state in megabytes; larger ones are refused before they are read
    #[arg(long, value_name = "MB", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=4096))]
    max_state_size: u32,
    /// Open connections allowed from one address of another machine; raise it for a proxy there
    #[arg(long, value_name = "N", default_value_t = 250, value_parser = clap::value_parser!(u32).range(1..=1000))]
    max_connections_per_address: u32,
    /// Also serve states at `/<name>`; without it only at `/state/…`, `/tfstate/states/…` and GitLab's path
    #[arg(long)]
    bare_paths: bool,
    /// Number of newest versions to keep of each state (default: all)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep_versions: Option<u32>,
    /// How long to keep versions, such as `365d` (default: forever); the newest is always kept
    #[arg(long, value_name = "TIME")]
    keep_for: Option<String>,
    /// Log level: `info` (every request), `warn` or `error`
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log: LevelFilter,
}

pub(crate) async fn server(
    args: ServerArgs,
    global: &Global,
    process: &Process,
) -> Result<ExitStatus, CommandError> {
    let tls = args.tls()?;
    start_log(args.log);
    let settings = process.settings(global)?;
    let Some(home) = settings.bare_home() else {
        return Err(
            CommandError::new("cannot start the server: no home was given")
                .hint("name its directory: `terrane server --data DIR`")
                .status(ExitStatus::Usage),
        );
    };
    let look = process.look(global);
    let control = open_control_for(ProcessKind::Server, home, &settings, process, look).await?;
    let policy = args.retention()?;
    let house = tokio::spawn(retention_job::regularly(control.clone(), policy, log_round));
    let service = StateService::new(control.clone());
    let limits = Limits {
        body: args.max_state_size as usize * 1024 * 1024,
        connections_per_address: args.max_connections_per_address as usize,
        ..Limits::default()
    };
    let listening = |err: &dyn std::error::Error| {
        CommandError::because(format!("cannot listen on `{}`", args.listen), err)
    };
    let listener = TcpListener::bind(args.listen)
        .await
        .map_err(|err| listening(&err))?;
    let mut signals = Signals::new()?;
    let hangups = signals.hangup.take();
    tokio::spawn(reload_on(hangups, tls.clone()));
    let address = listener.local_addr().map_err(|err| listening(&err))?;
    say_where(address, tls.is_some(), global)?;

    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = StateServer::new(service, limits).with_bare_paths(args.bare_paths);
    let serving = server.serve(listener, tls, async {
        let _ = stopped.await;
    });
    tokio::pin!(serving);
    tokio::select! {
        () = &mut serving => return Ok(ExitStatus::Done),
        () = signals.stop() => {}
    }
    tracing::info!("stopping: finishing running requests");
    house.abort();
    drop(stop);
    tokio::select! {
        () = serving => {
            retention_job::settle(&control)
                .await
                .map_err(|err| CommandError::from_error(&err))?;
            Ok(ExitStatus::Done)
        }
        () = signals.stop() => Err(CommandError::new("stopped at once, before all requests were finished")
            .status(ExitStatus::Interrupted)),
    }
}

fn log_round(round: Result<RetentionReport, RetentionError>) {
    match round {
        Ok(kept) => tracing::info!(
            versions = kept.versions.len(),
            refused = kept.refused,
            "removed expired versions"
        ),
        Err(err) => {
            let cause = std::error::Error::source(&err).map(ToString::to_string);
            tracing::warn!(error = %err, cause, "cannot remove expired versions");
        }
    }
}

impl ServerArgs {
    fn retention(&self) -> Result<RetentionPolicy, CommandError> {
        let lifetime = self.keep_for.as_deref().map(str::parse::<Lifetime>);
        let lifetime = lifetime
            .transpose()
            .map_err(|err| CommandError::from_error(&err).status(ExitStatus::Usage))?;
        Ok(RetentionPolicy {
            max_age: lifetime.and_then(|lifetime| lifetime.0.try_into().ok()),
            max_count: self.keep_versions.map(|count| count as usize),
        })
    }

    fn tls(&self) -> Result<Option<Arc<Tls>>, CommandError> {
        if let (Some(certificate), Some(key)) = (&self.tls_cert, &self.tls_key) {
            let files = TlsFiles {
                certificate: certificate.clone(),
                key: key.clone(),
                client_ca: self.client_ca.clone(),
            };
            let tls = Tls::load(files).map_err(|err| CommandError::from_error(&err))?;
            return Ok(Some(Arc::new(tls)));
        }
        if self.listen.ip().is_loopback() || self.allow_plain_http {
            return Ok(None);
        }
        let message = format!(
            "cannot listen on `{}`: other machines can reach it, and there is no TLS",
            self.listen
        );
        Err(CommandError::new(message)
            .hint("add `--tls-cert FILE --tls-key FILE`; otherwise tokens and states cross the network in clear")
            .hint("behind a proxy that terminates TLS, add `--allow-plain-http`")
            .status(ExitStatus::Refused))
    }
}

fn start_log(level: LevelFilter) {
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_target(false)
        .with_max_level(level)
        .with_writer(std::io::stderr);
    // It fails only if a subscriber is set already.
    let _ = tracing_subscriber::util::SubscriberInitExt::try_init(subscriber.finish());
}

fn say_where(address: SocketAddr, is_tls: bool, global: &Global) -> Result<(), CommandError> {
    let scheme = if is_tls { "https" } else { "http" };
    let url = format!("{scheme}://{address}");
    if global.json {
        report::json_line(&json!({ "event": "listening", "url": url }))
    } else {
        report::say(&format!("listening on {url}\n"))
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
}

impl Signals {
    fn new() -> Result<Self, CommandError> {
        let listen = |kind| {
            signal(kind).map_err(|err| CommandError::because("cannot wait for signals", &err))
        };
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: Some(listen(SignalKind::hangup())?),
        })
    }

    async fn stop(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

async fn reload_on(hangups: Option<Signal>, tls: Option<Arc<Tls>>) {
    let Some(mut hangups) = hangups else { return };
    while hangups.recv().await.is_some() {
        if let Some(tls) = &tls {
            tls.reload();
        }
    }
}
