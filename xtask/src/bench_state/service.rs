//! A measured state service: started in its own directory, stopped on drop.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use testkit::Postgres;

use super::options::StateBenchOptions;
use crate::child;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServiceKind {
    TerraneSqlite,
    TerranePostgres,
    NimbolusFiles,
    NimbolusPostgres,
    Tfstated,
}

pub(crate) struct BenchService {
    kind: ServiceKind,
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) authorization: String,
    dir: PathBuf,
    /// Kept until the service that uses it is dropped.
    _postgres: Option<Postgres>,
}

impl ServiceKind {
    pub(crate) const ALL: [Self; 5] = [
        Self::TerraneSqlite,
        Self::TerranePostgres,
        Self::NimbolusFiles,
        Self::NimbolusPostgres,
        Self::Tfstated,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::TerraneSqlite => "terrane on SQLite",
            Self::TerranePostgres => "terrane on PostgreSQL",
            Self::NimbolusFiles => "nimbolus on files",
            Self::NimbolusPostgres => "nimbolus on PostgreSQL",
            Self::Tfstated => "tfstated",
        }
    }

    /// What an acknowledged write guarantees.
    pub(crate) fn promises(self) -> &'static str {
        match self {
            Self::TerraneSqlite | Self::TerranePostgres => "durable, every version, encrypted",
            Self::NimbolusFiles => "not durable, no versions, encrypted",
            Self::NimbolusPostgres => "durable, no versions, encrypted",
            Self::Tfstated => "durable (WAL, no sync), versions, encrypted",
        }
    }

    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::TerraneSqlite => "terrane-sqlite",
            Self::TerranePostgres => "terrane-postgres",
            Self::NimbolusFiles => "nimbolus-files",
            Self::NimbolusPostgres => "nimbolus-postgres",
            Self::Tfstated => "tfstated",
        }
    }
}

impl BenchService {
    /// `None` if its program is not available.
    pub(crate) fn start(
        kind: ServiceKind,
        options: &StateBenchOptions,
        dir: &Path,
    ) -> io::Result<Option<Self>> {
        fs::create_dir_all(dir)?;
        match kind {
            ServiceKind::TerraneSqlite | ServiceKind::TerranePostgres => {
                terrane(kind, &options.terrane, dir).map(Some)
            }
            ServiceKind::NimbolusFiles | ServiceKind::NimbolusPostgres => {
                let program = options.nimbolus.as_deref();
                program
                    .map(|program| nimbolus(kind, program, dir))
                    .transpose()
            }
            ServiceKind::Tfstated => {
                let program = options.tfstated.as_deref();
                program.map(|program| tfstated(program, dir)).transpose()
            }
        }
    }

    pub(crate) fn path(&self, number: usize) -> String {
        match self.kind {
            ServiceKind::Tfstated => format!("/bench-{number}"),
            _ => format!("/state/bench/state-{number}"),
        }
    }

    /// The peak memory in bytes.
    pub(crate) fn memory(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
        let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kilobytes * 1024)
    }

    /// The end of its log, if it has exited.
    pub(crate) fn last_words(&self) -> String {
        let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        let fatal = log.lines().find(|line| line.starts_with("fatal error"));
        fatal.map_or_else(String::new, |line| format!(" (it said: {line})"))
    }

    /// The size of the versions on disk.
    pub(crate) fn blob_bytes(&self) -> io::Result<u64> {
        let mut sum = 0;
        for entry in fs::read_dir(self.dir.join("home/segments"))? {
            sum += entry?.metadata()?.len();
        }
        Ok(sum)
    }
}

impl Drop for BenchService {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn terrane(kind: ServiceKind, program: &Path, dir: &Path) -> io::Result<BenchService> {
    let postgres = (kind == ServiceKind::TerranePostgres).then(Postgres::start);
    let home = match &postgres {
        None => dir.join("home").display().to_string(),
        Some(postgres) => {
            let blobs = dir.join("blobs");
            fs::create_dir_all(&blobs)?;
            let database = postgres.database();
            let sep = if database.contains('?') { '&' } else { '?' };
            format!("{database}{sep}blobs=file://{}", blobs.display())
        }
    };
    let command = |args: &[&str]| {
        let mut command = child::command(dir, program);
        command
            .args(args)
            .env("TERRANE_HOME", &home)
            .env("TERRANE_KEY_FILE", dir.join("master.key"))
            .stderr(Stdio::from(File::create(dir.join("log"))?));
        io::Result::Ok(command)
    };
    let token = command(&["token", "create", "bench", "--write"])?.output()?;
    if !token.status.success() {
        let log = fs::read_to_string(dir.join("log"))?;
        return Err(io::Error::other(format!("no token: {log}")));
    }
    let token = String::from_utf8_lossy(&token.stdout).trim().to_owned();
    let mut child = command(&["server", "--listen", "127.0.0.1:0", "--json"])?
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    let event: serde_json::Value = serde_json::from_str(&line)?;
    let url = event["url"].as_str().unwrap_or_default();
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    Ok(BenchService {
        kind,
        child,
        address: address.parse().map_err(io::Error::other)?,
        authorization: basic("bench", &token),
        dir: dir.to_owned(),
        _postgres: postgres,
    })
}

fn nimbolus(kind: ServiceKind, program: &Path, dir: &Path) -> io::Result<BenchService> {
    let (address, metrics) = (free_address()?, free_address()?);
    let mut command = child::command(dir, program);
    command
        .env("LISTEN_ADDR", address.to_string())
        .env("METRICS_LISTEN_ADDR", metrics.to_string())
        .env("LOG_LEVEL", "fatal")
        .env("STORAGE_FS_DIR", dir.join("states"))
        .env("KMS_KEY", BASE64.encode([7; 32]));
    let postgres = (kind == ServiceKind::NimbolusPostgres).then(Postgres::start);
    if let Some(postgres) = &postgres {
        command
            .env("STORAGE_BACKEND", "postgres")
            .env("LOCK_BACKEND", "postgres")
            .env("POSTGRES_CONNECTION", postgres.database());
    }
    let child = quiet(&mut command, dir)?.spawn()?;
    wait_for(address)?;
    Ok(BenchService {
        kind,
        child,
        address,
        authorization: basic("basic", "some-random-secret"),
        dir: dir.to_owned(),
        _postgres: postgres,
    })
}

fn tfstated(program: &Path, dir: &Path) -> io::Result<BenchService> {
    let (address, web) = (free_address()?, free_address()?);
    let mut command = child::command(dir, program);
    command
        .env("TFSTATED_HOST", "127.0.0.1")
        .env("TFSTATED_PORT", address.port().to_string())
        .env("TFSTATED_WEBUI_HOST", "127.0.0.1")
        .env("TFSTATED_WEBUI_PORT", web.port().to_string())
        .env("TFSTATED_DATA_ENCRYPTION_KEY", BASE64.encode([7; 32]))
        .env("TFSTATED_SESSIONS_SALT", BASE64.encode([8; 32]));
    let child = quiet(&mut command, dir)?.spawn()?;
    wait_for(address)?;
    // It prints its initial password once, in its log.
    let log = fs::read_to_string(dir.join("log"))?;
    let password = log
        .split("\"password\":\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next())
        .ok_or_else(|| io::Error::other("tfstated says no password"))?;
    Ok(BenchService {
        kind: ServiceKind::Tfstated,
        child,
        address,
        authorization: basic("admin", password),
        dir: dir.to_owned(),
        _postgres: None,
    })
}

fn quiet<'c>(command: &'c mut Command, dir: &Path) -> io::Result<&'c mut Command> {
    let log = File::create(dir.join("log"))?;
    Ok(command.stdout(log.try_clone()?).stderr(log))
}

fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", BASE64.encode(format!("{user}:{password}")))
}

fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind(("127.0.0.1", 0))?.local_addr()
}

fn wait_for(address: SocketAddr) -> io::Result<()> {
    let begun = Instant::now();
    while TcpStream::connect(address).is_err() {
        if begun.elapsed() > Duration::from_secs(20) {
            return Err(io::Error::other(format!("nobody listens on {address}")));
        }
        testkit::pause(Duration::from_millis(20));
    }
    Ok(())
}
