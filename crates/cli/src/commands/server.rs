//! `terrane server`

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use control::home::Use;
use control::state_service::StateService;
use control::states::housekeeping::{self, HouseKept, KeepHouseError};
use model::retention::RetentionPolicy;
use model::token::Lifetime;
use serde_json::json;
use server::service::{CONNECTIONS, StateServer};
use server::tls::{Tls, TlsFiles};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing_subscriber::filter::LevelFilter;

use super::open_control_for;
use crate::args::Global;
use crate::{CommandError, ExitStatus, Process, report};

/// Serve states over HTTP to OpenTofu, Terraform and whatever speaks their protocol
///
/// It serves the home itself: every state of it that a token reaches, and new ones by their first write.
/// Requests are logged as JSON lines on standard error, without secrets, queries or bodies. SIGHUP reads the
/// certificate again (it is also looked at when its files change); SIGTERM or Ctrl-C stops accepting, finishes what
/// is under way and ends; a second one ends at once.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  terrane server --data /var/lib/terrane --listen 127.0.0.1:8080\n  \
    terrane server --data /var/lib/terrane --listen 0.0.0.0:8443 --tls-cert tls.crt --tls-key tls.key\n  \
    terrane server --data DIR --listen 127.0.0.1:0 --json     # says which port it got\n\n\
    Then make a token: `terrane token create ci --data DIR`."
)]
pub(crate) struct ServerArgs {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// The server's certificate chain, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The certificate's key, as PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Only talk to clients with a certificate that one of these has signed; they need a token too
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    client_ca: Option<PathBuf>,
    /// Serve without TLS to other machines, as behind a proxy that has it
    #[arg(long, conflicts_with = "tls_cert")]
    allow_plain_http: bool,
    /// Refuse larger states before they are read, in megabytes
    #[arg(long, value_name = "MB", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=4096))]
    max_state_size: u32,
    /// Connections that one address of another machine may have; a proxy there speaks for many
    #[arg(long, value_name = "N", default_value_t = 250, value_parser = clap::value_parser!(u32).range(1..=1000))]
    max_connections_per_address: u32,
    /// Keep so many of the newest versions of each state; all, if it is not said
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    keep_versions: Option<u32>,
    /// Keep versions for so long (`365d`); for ever, if it is not said. The newest stays in any case
    #[arg(long, value_name = "TIME")]
    keep_for: Option<String>,
    /// Log `info` (every request), `warn` or `error`
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
        return Err(CommandError::new("a server needs a home of its own")
            .hint("name its directory: `--data DIR` or `TERRANE_HOME`")
            .status(ExitStatus::Usage));
    };
    let look = process.look(global);
    let control = open_control_for(Use::Serving, home, &settings, process, look).await?;
    let policy = args.retention()?;
    let store = control.store.clone();
    let house = tokio::spawn(housekeeping::regularly(store.clone(), policy, log_round));
    let service = StateService::new(control.store, control.home);
    let limit = args.max_state_size as usize * 1024 * 1024;
    let listening = |err: &dyn std::error::Error| {
        CommandError::because(format!("could not listen on `{}`", args.listen), err)
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
    let server = StateServer::new(service, limit);
    let server = server.limited_to(CONNECTIONS, args.max_connections_per_address as usize);
    let serving = server.serve(listener, tls, async {
        let _ = stopped.await;
    });
    tokio::pin!(serving);
    tokio::select! {
        () = &mut serving => return Ok(ExitStatus::Done),
        () = signals.stop() => {}
    }
    tracing::info!("stopping: what is under way is finished");
    house.abort();
    drop(stop);
    tokio::select! {
        () = serving => {
            housekeeping::settle(&store)
                .await
                .map_err(|err| CommandError::from_error(&err))?;
            Ok(ExitStatus::Done)
        }
        () = signals.stop() => Err(CommandError::new("stopped at once, with requests under way")
            .status(ExitStatus::Interrupted)),
    }
}

fn log_round(round: Result<HouseKept, KeepHouseError>) {
    match round {
        Ok(kept) => tracing::info!(
            versions = kept.versions.len(),
            refused = kept.refused,
            "kept house"
        ),
        Err(err) => {
            let cause = std::error::Error::source(&err).map(ToString::to_string);
            tracing::warn!(error = %err, cause, "could not keep house");
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
        let said = format!(
            "`{}` is open to other machines, and there is no TLS",
            self.listen
        );
        Err(CommandError::new(said)
            .hint("tokens and states would cross the network in clear: give `--tls-cert` and `--tls-key`")
            .hint("behind a proxy that has TLS, say `--allow-plain-http`")
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
    // It fails only if there is one already.
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
            signal(kind).map_err(|err| CommandError::because("could not wait for signals", &err))
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
