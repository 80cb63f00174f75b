//! A fake of a service that is not available. Each request that a test lists gets a prepared answer, written after
//! the service's published API; any other gets a 404. The requests are recorded. Such a test shows our requests
//! and how we read those answers, not that the service gives them.
//!
//! Not here: services that are available; tests use the real ones.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Answers until the test process ends.
pub struct ScriptedServer {
    address: String,
    asked: Arc<Mutex<Vec<RecordedRequest>>>,
}

/// One request.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// `GET /path?query`.
    pub line: String,
    /// By name, in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

impl ScriptedServer {
    /// By `METHOD /path?query`: a status and a body.
    pub fn start(answers: &[(&str, u16, &str)]) -> Self {
        let answers: BTreeMap<String, (u16, String)> = answers
            .iter()
            .map(|(line, status, body)| ((*line).to_owned(), (*status, (*body).to_owned())))
            .collect();
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                answer(stream, &answers, &shared);
            }
        });
        Self { address, asked }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// `127.0.0.1:PORT`.
    pub fn host(&self) -> &str {
        self.address.trim_start_matches("http://")
    }

    pub fn asked(&self) -> Vec<RecordedRequest> {
        self.asked.lock().expect("a lock").clone()
    }

    /// The first lines of the requests.
    pub fn lines(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.line).collect()
    }
}

fn answer(
    mut stream: TcpStream,
    answers: &BTreeMap<String, (u16, String)>,
    asked: &Mutex<Vec<RecordedRequest>>,
) {
    let mut reader = BufReader::new(stream.try_clone().expect("a stream"));
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let words: Vec<&str> = line.split(' ').collect();
    let line = format!("{} {}", words[0], words.get(1).unwrap_or(&""));
    let mut headers = BTreeMap::new();
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).expect("a header");
        let Some((name, value)) = header.trim_end().split_once(": ") else {
            break;
        };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length");
    let length = length.map_or(0, |length| length.parse().expect("a length"));
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    let body = String::from_utf8_lossy(&body).into_owned();
    let (status, said) = answers.get(&line).cloned().unwrap_or((404, String::new()));
    let request = RecordedRequest {
        line,
        headers,
        body,
    };
    asked.lock().expect("a lock").push(request);
    let head = format!(
        "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        said.len()
    );
    // The client may have disconnected.
    let _ = stream
        .write_all(head.as_bytes())
        .and_then(|()| stream.write_all(said.as_bytes()));
}
