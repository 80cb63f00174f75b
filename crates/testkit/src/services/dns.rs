//! Knot DNS for tests: two name servers of the zone `example.io`, on 127.0.0.1 and 127.0.0.2 with the same port.
//! The test gives each its records, so that they can disagree.

use std::fmt::Write as _;
use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;

use crate::services::service::{Service, ServiceSpec, Sharing, program, temp_dir};

pub struct Dns(Service);

/// The keeper treats both servers as one: if one ends, the other is stopped too.
const BOTH: &str = r#"
cd "$1"; knot=$2
for own in 1 2; do
  sed "s/LISTEN/127.0.0.$own@$3/" "$own.conf.in" > "$own.conf"
  "$knot" --config "$own.conf" &
done
trap 'kill $(jobs -p) 2> /dev/null; wait' TERM EXIT
wait -n
"#;

impl Dns {
    /// Two servers with the same records: lines of the zone `example.io`, such as `www A 192.0.2.1`.
    pub fn start(records: &str) -> Self {
        Self::start_split(records, records)
    }

    /// Servers that hold different records.
    pub fn start_split(first: &str, second: &str) -> Self {
        let knot = program("knot", "TERRANE_TEST_KNOT", &["/usr/sbin/knotd"]);
        let recipe = |dir: &Path| {
            write(dir, first, second);
            ServiceSpec {
                name: "knot",
                args: vec![
                    "bash".into(),
                    "-c".into(),
                    BOTH.into(),
                    "knot".into(),
                    dir.into(),
                    knot.clone().into(),
                    "PORT".into(),
                ],
                env: [].into(),
                signal: "TERM",
            }
        };
        Self(Service::start(
            temp_dir("knot"),
            Sharing::Alone,
            recipe,
            is_ready,
        ))
    }

    /// `127.0.0.1:PORT`
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    pub fn port(&self) -> u16 {
        self.0.port()
    }

    /// Replaces the records of both servers.
    pub fn change(&self, records: &str) {
        self.0.stop();
        write(self.0.dir(), records, records);
        self.0.start_again(is_ready);
    }

    /// Stops both servers.
    pub fn stop(&self) {
        self.0.stop();
    }
}

fn write(dir: &Path, first: &str, second: &str) {
    for (own, records) in [("1", first), ("2", second)] {
        let home = dir.join(format!("{own}.d"));
        fs::create_dir_all(&home).expect("a directory");
        let zone = home.join("example.io.zone");
        let mut text = String::from(
            "$ORIGIN example.io.\n$TTL 300\n\
             @ SOA ns1 admin 1 3600 600 86400 300\n\
             @ NS ns1\n@ NS ns2\nns1 A 127.0.0.1\nns2 A 127.0.0.2\n",
        );
        for line in records.lines().map(str::trim) {
            writeln!(text, "{line}").expect("a line");
        }
        fs::write(&zone, text).expect("a zone");
        let home = home.display();
        let zone = zone.display();
        let config = format!(
            "server:\n    rundir: {home}\n    listen: LISTEN\n    udp-workers: 1\n    tcp-workers: 1\n    \
             background-workers: 1\ndatabase:\n    storage: {home}\nlog:\n  - target: stderr\n    any: warning\n\
             zone:\n  - domain: example.io\n    file: {zone}\n    journal-content: none\n    zonefile-sync: -1\n"
        );
        fs::write(dir.join(format!("{own}.conf.in")), config).expect("settings");
    }
}

/// Whether both serve the zone.
fn is_ready(port: u16) -> bool {
    ["127.0.0.1", "127.0.0.2"].iter().all(|host| {
        // The zone's SOA: a header with one question, the name, type 6, class 1.
        let question = b"\x12\x34\0\0\0\x01\0\0\0\0\0\0\x07example\x02io\0\0\x06\0\x01";
        let mut answer = [0; 512];
        let mut ask = || -> std::io::Result<bool> {
            let socket = UdpSocket::bind(("127.0.0.1", 0))?;
            socket.set_read_timeout(Some(Duration::from_millis(500)))?;
            socket.connect((*host, port))?;
            socket.send(question)?;
            let length = socket.recv(&mut answer)?;
            Ok(length > 12 && answer[3] % 16 == 0 && answer[7] > 0)
        };
        ask().unwrap_or(false)
    })
}
