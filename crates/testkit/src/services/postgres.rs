//! PostgreSQL for tests: one server per test process, one database per test, and `fsync` as in production.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::services::service::{Service, ServiceSpec, Sharing, command, program, run, temp_dir};

/// A running PostgreSQL, shared or for one test.
pub struct Postgres(ServiceHandle);

enum ServiceHandle {
    Shared(&'static Service),
    Own(Service),
}

impl Postgres {
    /// The server of this test process; it starts on first use and stops with the process.
    pub fn start() -> Self {
        static SHARED: OnceLock<Service> = OnceLock::new();
        Self(ServiceHandle::Shared(
            SHARED.get_or_init(|| start(Sharing::Shared, &[])),
        ))
    }

    /// A server that a test may stop, with further settings such as `fsync=off`.
    pub fn own(settings: &[&str]) -> Self {
        Self(ServiceHandle::Own(start(Sharing::Alone, settings)))
    }

    /// Creates a database and returns its address.
    pub fn database(&self) -> String {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed));
        self.psql("postgres", &format!("CREATE DATABASE {name}"));
        format!(
            "postgres://{USER}@127.0.0.1:{}/{name}?sslmode=disable",
            self.service().port()
        )
    }

    /// Runs SQL in a database and returns the output: rows only, columns separated by `|`.
    pub fn psql(&self, database: &str, sql: &str) -> String {
        let mut psql = command(bin().join("psql"));
        psql.args(["--no-psqlrc", "--quiet", "--no-align", "--tuples-only"])
            .args(["--host=127.0.0.1", &format!("--username={USER}")])
            .arg(format!("--port={}", self.service().port()))
            .args(["--set=ON_ERROR_STOP=1", "--command", sql, database]);
        run(&mut psql)
    }

    /// Stops the server like a power cut. Only for a server of one test.
    pub fn stop(&self) {
        self.own_service().stop();
    }

    pub fn start_again(&self) {
        self.own_service().start_again(is_ready);
    }

    fn service(&self) -> &Service {
        match &self.0 {
            ServiceHandle::Shared(service) => service,
            ServiceHandle::Own(service) => service,
        }
    }

    fn own_service(&self) -> &Service {
        match &self.0 {
            ServiceHandle::Shared(_) => {
                panic!("other tests use this PostgreSQL: `Postgres::own` makes one to stop")
            }
            ServiceHandle::Own(service) => service,
        }
    }
}

const USER: &str = "terrane";

fn bin() -> PathBuf {
    program(
        "postgres",
        "TERRANE_TEST_POSTGRES",
        &["/usr/lib/postgresql/17/bin", "/usr/lib/postgresql/15/bin"],
    )
}

fn start(kept: Sharing, settings: &[&str]) -> Service {
    let bin = bin();
    let dir = temp_dir("postgres");
    let data = dir.path().join("data");
    let user = Unprivileged::find();
    if let Some(user) = &user {
        chown(dir.path(), Some(user.uid), Some(user.gid)).expect("a directory of another's");
    }
    let mut initdb = as_user(user.as_ref(), &bin.join("initdb"));
    // Only the initialisation skips `fsync`; afterwards every commit is synced.
    let flags = ["--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C"];
    initdb.extend(flags.map(OsString::from));
    initdb.push(format!("--username={USER}").into());
    initdb.push(format!("--pgdata={}", data.display()).into());
    run(command(&initdb[0])
        .args(&initdb[1..])
        .current_dir(dir.path()));

    let recipe = |_: &Path| {
        let mut args = as_user(user.as_ref(), &bin.join("postgres"));
        args.extend(["-D".into(), data.clone().into()]);
        let fixed = [
            "listen_addresses=127.0.0.1",
            "port=PORT",
            "unix_socket_directories=",
            "max_connections=300",
            "fsync=on",
        ];
        for setting in fixed.iter().chain(settings) {
            args.extend(["-c".into(), (*setting).into()]);
        }
        ServiceSpec {
            name: "postgres",
            args,
            env: BTreeMap::new(),
            // Stops all processes at once, without a checkpoint.
            signal: "QUIT",
        }
    };
    Service::start(dir, kept, recipe, is_ready)
}

fn is_ready(port: u16) -> bool {
    let mut asked = command(bin().join("pg_isready"));
    asked.args(["--quiet", "--host=127.0.0.1", &format!("--port={port}")]);
    asked.status().is_ok_and(|status| status.success())
}

/// PostgreSQL refuses to run as root, so it runs as the user that Debian created for it, or as `nobody`.
struct Unprivileged {
    uid: u32,
    gid: u32,
}

impl Unprivileged {
    fn find() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let users = fs::read_to_string("/etc/passwd").expect("a list of users");
        let of = |name: &str| {
            users.lines().find_map(|line| {
                let fields: Vec<&str> = line.split(':').collect();
                let ids = (fields.first() == Some(&name)).then(|| (fields[2], fields[3]))?;
                Some(Self {
                    uid: ids.0.parse().ok()?,
                    gid: ids.1.parse().ok()?,
                })
            })
        };
        Some(
            of("postgres")
                .or_else(|| of("nobody"))
                .expect("a user that is not root"),
        )
    }
}

fn as_user(user: Option<&Unprivileged>, program: &Path) -> Vec<OsString> {
    let mut args: Vec<OsString> = Vec::new();
    if let Some(Unprivileged { uid, gid }) = user {
        args.extend(["setpriv".into(), "--clear-groups".into()]);
        args.extend([
            format!("--reuid={uid}").into(),
            format!("--regid={gid}").into(),
        ]);
    }
    args.push(program.into());
    args
}
