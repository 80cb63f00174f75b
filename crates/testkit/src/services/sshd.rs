//! An OpenSSH server on a loopback port, with a host key and a user key made for the test.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use crate::services::service::{Service, ServiceSpec, Sharing, command, program, run, temp_dir};

pub struct Sshd {
    service: Service,
    key: String,
    user: String,
}

impl Sshd {
    pub fn start() -> Self {
        let sshd = program("sshd", "TERRANE_TEST_SSHD", &["/usr/sbin/sshd"]);
        let dir = temp_dir("sshd");
        let path = dir.path().to_owned();
        for name in ["host", "user"] {
            let mut keygen = command("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"]);
            run(keygen.arg(path.join(name)));
        }
        let key = fs::read_to_string(path.join("user")).expect("a key");
        let user = run(command("id").arg("-un")).trim().to_owned();
        // The privilege separation directory; only needed, and only allowed, as root.
        if user == "root" {
            fs::create_dir_all("/run/sshd").expect("a directory for sshd");
        }
        let shown = path.display();
        let config = format!(
            "ListenAddress 127.0.0.1\nHostKey {shown}/host\nAuthorizedKeysFile {shown}/user.pub\nPidFile none\n\
             StrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             PermitRootLogin prohibit-password\nAcceptEnv GIT_PROTOCOL\n"
        );
        fs::write(path.join("config"), config).expect("its settings");
        let recipe = |dir: &Path| ServiceSpec {
            name: "sshd",
            args: vec![
                sshd.clone().into(),
                "-D".into(),
                "-e".into(),
                "-f".into(),
                dir.join("config").into(),
                "-p".into(),
                "PORT".into(),
            ],
            env: BTreeMap::new(),
            signal: "TERM",
        };
        Self {
            service: Service::start(dir, Sharing::Alone, recipe, greets),
            key,
            user,
        }
    }

    /// The private key for this server.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The address of a repository, by its absolute path.
    pub fn url(&self, path: &Path) -> String {
        let port = self.service.port();
        format!("ssh://{}@127.0.0.1:{port}{}", self.user, path.display())
    }
}

/// An SSH server sends the first message.
fn greets(port: u16) -> bool {
    let mut greeting = [0; 4];
    TcpStream::connect(("127.0.0.1", port))
        .and_then(|mut stream| {
            stream.set_read_timeout(Some(Duration::from_secs(10)))?;
            stream.read_exact(&mut greeting)
        })
        .is_ok_and(|()| &greeting == b"SSH-")
}
