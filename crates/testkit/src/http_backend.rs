//! A simple third-party HTTP backend: a state and a lock per path, in memory.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct BackendState {
    places: BTreeMap<String, StoredState>,
    log: Vec<String>,
    broken: Option<&'static str>,
    locks: LockStyle,
    /// The last of these methods is not answered, if it follows the others.
    silent: Option<&'static str>,
    unanswered: Vec<TcpStream>,
}

/// Where and how it locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockStyle {
    /// `LOCK` and `UNLOCK` at the state's own path.
    #[default]
    Own,
    /// The same at `/lock` below it.
    Below,
    /// `POST` and `DELETE` at `/lock` below it.
    GitLab,
    Nowhere,
}

impl LockStyle {
    /// The state's path, and `true` for a lock or `false` for an unlock.
    fn meant<'a>(self, method: &str, path: &'a str) -> Option<(&'a str, bool)> {
        let below = path.strip_suffix("/lock");
        match (self, method) {
            (Self::Own, "LOCK") => Some((path, true)),
            (Self::Own, "UNLOCK") => Some((path, false)),
            (Self::Below, "LOCK") | (Self::GitLab, "POST") => Some((below?, true)),
            (Self::Below, "UNLOCK") | (Self::GitLab, "DELETE") => Some((below?, false)),
            _ => None,
        }
    }
}

#[derive(Default)]
struct StoredState {
    state: Option<Vec<u8>>,
    lock: Option<Vec<u8>>,
}

impl StoredState {
    fn holder(&self) -> Option<String> {
        self.lock.as_deref().and_then(id_of)
    }
}

/// The id in a lock's JSON, as the client sent it.
fn id_of(lock: &[u8]) -> Option<String> {
    let lock: serde_json::Value = serde_json::from_slice(lock).ok()?;
    lock["ID"].as_str().map(str::to_owned)
}

/// The path of the initial state.
const PATH: &str = "/state";

/// Answers until the test process ends; without the right credential, with 401.
pub struct FakeHttpBackend {
    address: String,
    kept: Arc<Mutex<BackendState>>,
}

impl FakeHttpBackend {
    /// The credential `user:password` of an `Authorization` header.
    pub const CREDENTIAL: &str = "user:password";
    const BASIC: &str = "Basic dXNlcjpwYXNzd29yZA==";

    pub fn start(state: Option<&str>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = format!(
            "http://{}{PATH}",
            listener.local_addr().expect("an address")
        );
        let place = StoredState {
            state: state.map(|text| text.as_bytes().to_vec()),
            lock: None,
        };
        let kept = Arc::new(Mutex::new(BackendState {
            places: BTreeMap::from([(PATH.to_owned(), place)]),
            ..BackendState::default()
        }));
        let shared = Arc::clone(&kept);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                answer(stream, &shared);
            }
        });
        Self { address, kept }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Another client takes the lock of the state at this path.
    pub fn is_locked_by(&self, path: &str, id: &str) {
        let mut kept = self.kept.lock().expect("a lock");
        let place = kept.places.entry(path.to_owned()).or_default();
        place.lock = Some(format!("{{\"ID\":\"{id}\"}}").into_bytes());
    }

    /// Changes the lock method.
    pub fn locks_by(&self, locks: LockStyle) {
        self.kept.lock().expect("a lock").locks = locks;
    }

    /// Stops answering this method; of several, the last one, if it follows the others.
    pub fn is_silent_on(&self, methods: &'static str) {
        self.kept.lock().expect("a lock").silent = Some(methods);
    }

    /// Answers this method with 500.
    pub fn breaks_on(&self, method: &'static str) {
        self.kept.lock().expect("a lock").broken = Some(method);
    }

    pub fn state(&self) -> Option<String> {
        let kept = self.kept.lock().expect("a lock");
        let state = kept.places[PATH].state.as_ref();
        state.map(|body| String::from_utf8_lossy(body).into_owned())
    }

    /// Whether any of its states is locked.
    pub fn is_locked(&self) -> bool {
        let kept = self.kept.lock().expect("a lock");
        kept.places.values().any(|place| place.lock.is_some())
    }

    /// The paths of its states.
    pub fn paths(&self) -> Vec<String> {
        let kept = self.kept.lock().expect("a lock");
        let held = kept
            .places
            .iter()
            .filter(|(_, place)| place.state.is_some());
        held.map(|(path, _)| path.clone()).collect()
    }

    /// The methods of the requests, in order.
    pub fn log(&self) -> String {
        self.kept.lock().expect("a lock").log.join(" ")
    }
}

/// Answers one request per connection.
fn answer(mut stream: TcpStream, kept: &Mutex<BackendState>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a stream"));
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let mut words = line.split(' ').map(str::to_owned);
    let method = words.next().unwrap_or_default();
    let target = words.next().unwrap_or_default();
    let path = target.split('?').next().unwrap_or_default().to_owned();
    let (mut length, mut allowed) = (0, false);
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).expect("a header");
        let Some((name, value)) = header.trim_end().split_once(": ") else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().expect("a length"),
            "authorization" => allowed = value == FakeHttpBackend::BASIC,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    let mut kept = kept.lock().expect("a lock");
    kept.log.push(method.clone());
    let (broken, locks) = (kept.broken, kept.locks);
    let is_silent = kept.silent.is_some_and(|methods| {
        let methods: Vec<&str> = methods.rsplit(' ').collect();
        let last: Vec<&str> = kept
            .log
            .iter()
            .rev()
            .take(methods.len())
            .map(String::as_str)
            .collect();
        last == methods
    });
    if is_silent {
        kept.unanswered.push(stream);
        return;
    }
    let meant = locks.meant(&method, &path);
    let place = meant.map_or(path.as_str(), |(path, _)| path).to_owned();
    let place = kept.places.entry(place).or_default();
    let (status, sent) = match (method.as_str(), meant) {
        _ if !allowed => (401, Vec::new()),
        (method, _) if Some(method) == broken => (500, Vec::new()),
        (_, Some((_, true))) => {
            if let Some(held) = &place.lock {
                (423, held.clone())
            } else {
                place.lock = Some(body);
                (200, Vec::new())
            }
        }
        // An unlock without an id is accepted for any lock.
        (_, Some((_, false))) if id_of(&body).is_some_and(|id| Some(id) != place.holder()) => {
            (409, place.lock.clone().unwrap_or_default())
        }
        (_, Some((_, false))) => {
            place.lock = None;
            (200, Vec::new())
        }
        ("LOCK" | "UNLOCK" | "DELETE", None) => (405, Vec::new()),
        ("POST", None) => {
            place.state = Some(body);
            (200, Vec::new())
        }
        _ => match &place.state {
            Some(state) => (200, state.clone()),
            None => (404, Vec::new()),
        },
    };
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        sent.len()
    );
    // The client may have disconnected.
    let _ = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(&sent));
}
