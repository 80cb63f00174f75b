//! A server that is killed again and again, while clients go on as engines do: what is not answered is sent again.
//! Whatever was acknowledged is there, and nobody holds a lock that somebody else holds.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use testkit::{Minio, Postgres, SeededRng, TestTerrane};

use crate::project::terrane;
use crate::server::{Server, token};
use crate::shared::settings;

const KILLS: usize = 200;
/// In a bucket each start and each write takes longer.
const KILLS_WITH_A_BUCKET: usize = 40;
const STATES: usize = 3;
/// For each state, so that they meet.
const CLIENTS: usize = 2;

/// What all clients know.
struct World {
    secret: String,
    /// Where the server of this moment listens.
    address: Mutex<Option<SocketAddr>>,
    /// The highest serial that was acknowledged, of each state.
    acknowledged: [AtomicU64; STATES],
    /// Who holds each state, as far as it was told so.
    holder: [AtomicUsize; STATES],
    is_over: AtomicBool,
}

#[test]
fn nothing_acknowledged_is_lost_on_sqlite() {
    kill_again_and_again(&terrane(), KILLS);
}

#[test]
fn nothing_acknowledged_is_lost_on_postgres() {
    let test = terrane();
    let blobs = test.root().join("bucket").display().to_string();
    let home = format!("{}&blobs=file://{blobs}", Postgres::start().database());
    kill_again_and_again(&test.env("TERRANE_HOME", &home), KILLS);
}

#[test]
fn nothing_acknowledged_is_lost_with_a_bucket() {
    let minio = Minio::start();
    let blobs = format!("s3://{}/kills", minio.bucket());
    let home = format!("{}&blobs={blobs}", Postgres::start().database());
    let test = terrane().env("TERRANE_HOME", &home);
    let test = settings(&minio)
        .iter()
        .fold(test, |test, (name, value)| test.env(name, value));
    kill_again_and_again(&test, KILLS_WITH_A_BUCKET);
}

fn kill_again_and_again(test: &TestTerrane, kills: usize) {
    let seed = testkit::seed();
    let mut dice = SeededRng::new(seed);
    let world = World {
        secret: token(test, &["clients", "--write"]),
        address: Mutex::new(None),
        acknowledged: [const { AtomicU64::new(0) }; STATES],
        holder: [const { AtomicUsize::new(0) }; STATES],
        is_over: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> = (1..=STATES * CLIENTS)
            .map(|me| {
                scope.spawn({
                    let world = &world;
                    move || go_on(world, me)
                })
            })
            .collect();
        for _ in 0..kills {
            let server = Server::start(test, &[]);
            world.moved_to(Some(server.address()));
            // The moment is what is tried here, not something to wait for.
            testkit::pause(Duration::from_millis(dice.roll(120)));
            world.moved_to(None);
            server.kill();
        }
        let server = Server::start(test, &[]);
        world.moved_to(Some(server.address()));
        world.is_over.store(true, Ordering::SeqCst);
        for client in clients {
            client
                .join()
                .unwrap_or_else(|_| panic!("a client failed, seed {seed}"));
        }
        drop(server.stop().expect(0));
    });
    let written: u64 = world
        .acknowledged
        .iter()
        .map(|serial| serial.load(Ordering::SeqCst))
        .sum();
    assert!(written > 0, "nobody wrote, seed {seed}");
    // Outside of any project, the home itself is asked.
    let verified = test.cli_in("..", &["state", "verify"]);
    assert_eq!(verified.code, Some(0), "{verified}\nseed {seed}");
    let locks = test.cli_in("..", &["lock", "list", "--json"]).expect(0);
    assert!(!locks.stdout.contains("\"who\""), "{locks}\nseed {seed}");
}

/// Locks, reads, writes, unlocks, until it is over; each step is sent until it is answered.
fn go_on(world: &World, me: usize) {
    let state = me % STATES;
    let path = format!("/state/kills/state-{state}");
    for cycle in 0.. {
        if world.is_over.load(Ordering::SeqCst) {
            return;
        }
        let id = format!("lock-{me}-{cycle}");
        let lock =
            format!(r#"{{"ID":"{id}","Operation":"OperationTypeApply","Who":"client {me}"}}"#);
        let (status, _) = world.insist("LOCK", &path, &lock);
        if status == 423 {
            continue;
        }
        assert_eq!(status, 200, "LOCK");
        let before = world.holder[state].swap(me, Ordering::SeqCst);
        assert_eq!(before, 0, "client {me} got a lock that client {before} has");
        let (status, body) = world.insist("GET", &path, "");
        let known = world.acknowledged[state].load(Ordering::SeqCst);
        let found = if status == 404 { 0 } else { serial_of(&body) };
        assert_eq!(
            found, known,
            "state {state}: what was acknowledged is not what is there"
        );
        let next = known + 1;
        let body = format!(
            r#"{{"version":4,"serial":{next},"lineage":"l","outputs":{{}},"resources":[{{"by":{me}}}]}}"#
        );
        let (status, _) = world.insist("POST", &format!("{path}?ID={id}"), &body);
        assert_eq!(status, 200, "POST");
        world.acknowledged[state].store(next, Ordering::SeqCst);
        world.holder[state].store(0, Ordering::SeqCst);
        let (status, _) = world.insist("UNLOCK", &path, &lock);
        assert_eq!(status, 200, "UNLOCK");
    }
}

impl World {
    fn moved_to(&self, address: Option<SocketAddr>) {
        *self.address.lock().unwrap_or_else(PoisonError::into_inner) = address;
    }

    /// Sends it until there is an answer, as a client does whose server comes back.
    fn insist(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        loop {
            let address = *self.address.lock().unwrap_or_else(PoisonError::into_inner);
            let answer = address.map(|address| self.send(address, method, path, body));
            match answer {
                Some(Ok((status, body))) if !matches!(status, 429 | 500..) => {
                    return (status, body);
                }
                _ => testkit::pause(Duration::from_millis(2)),
            }
        }
    }

    fn send(
        &self,
        address: SocketAddr,
        method: &str,
        path: &str,
        body: &str,
    ) -> io::Result<(u16, String)> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\nAuthorization: Bearer {}\r\nContent-Length: {length}\r\n\r\n",
            self.secret
        );
        stream.write_all(format!("{head}{body}").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        let status = status.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok((status, body.to_owned()))
    }
}

fn serial_of(body: &str) -> u64 {
    let state: serde_json::Value = serde_json::from_str(body).unwrap();
    state["serial"].as_u64().unwrap()
}
