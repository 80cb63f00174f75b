//! `MinIO` for tests: an S3-compatible server, one per test process, one bucket per test.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::services::service::{Service, ServiceSpec, Sharing, answers, program, temp_dir};

/// A running `MinIO`, shared or for one test.
pub struct Minio(ServiceHandle);

enum ServiceHandle {
    Shared(&'static Service),
    Own(Service),
}

impl Minio {
    pub const ACCESS_KEY: &str = "terrane-test";
    pub const SECRET_KEY: &str = "terrane-test-secret";
    pub const REGION: &str = "us-east-1";

    /// The server of this test process; it starts on first use and stops with the process.
    pub fn start() -> Self {
        static SHARED: OnceLock<Service> = OnceLock::new();
        Self(ServiceHandle::Shared(
            SHARED.get_or_init(|| start(Sharing::Shared)),
        ))
    }

    /// A server that a test may stop.
    pub fn own() -> Self {
        Self(ServiceHandle::Own(start(Sharing::Alone)))
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.service().port())
    }

    /// Creates a bucket and returns its name.
    pub fn bucket(&self) -> String {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("test-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        // In a MinIO with one drive, a directory of the drive is a bucket.
        fs::create_dir(self.service().dir().join("drive").join(&name)).expect("a bucket");
        name
    }

    /// Keys in a bucket, sorted, with `/` between their parts.
    pub fn keys(&self, bucket: &str) -> Vec<String> {
        let root = self.service().dir().join("drive").join(bucket);
        let mut found = Vec::new();
        collect(&root, &root, &mut found);
        found.sort();
        found
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
                panic!("other tests use this MinIO: `Minio::own` makes one to stop")
            }
            ServiceHandle::Own(service) => service,
        }
    }
}

/// An object is a directory that holds `xl.meta`.
fn collect(root: &Path, dir: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.join("xl.meta").is_file() {
            let key = path.strip_prefix(root).expect("a path below its root");
            found.push(key.to_string_lossy().into_owned());
        } else if path.is_dir() {
            collect(root, &path, found);
        }
    }
}

fn start(kept: Sharing) -> Service {
    let minio = program(
        "minio",
        "TERRANE_TEST_MINIO",
        &["minio/v0.0.0-20260212201848-7aac2a2c5b7c/minio"],
    );
    let recipe = |dir: &Path| {
        let drive = dir.join("drive");
        fs::create_dir_all(&drive).expect("a directory");
        ServiceSpec {
            name: "minio",
            args: vec![
                minio.clone().into(),
                "server".into(),
                "--quiet".into(),
                "--address=127.0.0.1:PORT".into(),
                drive.into(),
            ],
            env: BTreeMap::from([
                ("MINIO_ROOT_USER", Minio::ACCESS_KEY),
                ("MINIO_ROOT_PASSWORD", Minio::SECRET_KEY),
                ("MINIO_UPDATE", "off"),
                ("MINIO_BROWSER", "off"),
            ])
            .into_iter()
            .map(|(name, value)| (name, OsString::from(value)))
            .collect(),
            signal: "KILL",
        }
    };
    Service::start(temp_dir("minio"), kept, recipe, is_ready)
}

fn is_ready(port: u16) -> bool {
    answers(
        port,
        "GET /minio/health/ready HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n",
    )
}
