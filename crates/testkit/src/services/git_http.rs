//! Git over HTTP as forges serve it: `git http-backend` behind a small server that requires a credential.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::services::service::command;

/// Serves the bare repositories below a directory until the test process ends.
pub struct GitHttp {
    address: String,
    log: Arc<Mutex<Vec<String>>>,
}

impl GitHttp {
    /// `credential` is `user:password`; without it every request is answered 401.
    pub fn start(root: &Path, credential: &str) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let log = Arc::new(Mutex::new(Vec::new()));
        let served = Served {
            root: root.to_owned(),
            basic: format!("Basic {}", STANDARD.encode(credential)),
            log: Arc::clone(&log),
        };
        let served = Arc::new(served);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let served = Arc::clone(&served);
                // The client may have disconnected.
                std::thread::spawn(move || served.answer(stream).unwrap_or_default());
            }
        });
        Self { address, log }
    }

    /// The address of a repository below the directory.
    pub fn url(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// The requests, one per line.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().expect("a lock").clone()
    }
}

struct Served {
    root: PathBuf,
    basic: String,
    log: Arc<Mutex<Vec<String>>>,
}

impl Served {
    /// Answers one request per connection.
    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let mut words = line.split(' ');
        let method = words.next().unwrap_or_default().to_owned();
        let target = words.next().unwrap_or_default().to_owned();
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        self.log
            .lock()
            .expect("a lock")
            .push(format!("{method} {target}"));
        let mut headers = Vec::new();
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            let Some((name, value)) = header.trim_end().split_once(": ") else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let header = |name: &str| {
            let found = headers.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.as_str()).unwrap_or_default()
        };
        let body = if header("transfer-encoding") == "chunked" {
            chunks(&mut reader)?
        } else {
            let mut body = vec![0; header("content-length").parse().unwrap_or(0)];
            reader.read_exact(&mut body)?;
            body
        };
        if header("authorization") != self.basic {
            return stream.write_all(
                b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"git\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            );
        }
        let mut backend = command("git")
            .arg("http-backend")
            .env("GIT_PROJECT_ROOT", &self.root)
            .env("GIT_HTTP_EXPORT_ALL", "1")
            .env("REMOTE_USER", "tester")
            .env("REQUEST_METHOD", &method)
            .env("PATH_INFO", path)
            .env("QUERY_STRING", query)
            .env("CONTENT_TYPE", header("content-type"))
            .env("CONTENT_LENGTH", body.len().to_string())
            .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
            .env("GIT_PROTOCOL", header("git-protocol"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut input = backend.stdin.take().expect("its input");
        let feeder = std::thread::spawn(move || input.write_all(&body));
        let output = backend.wait_with_output()?;
        // Git may exit without reading all of its input.
        let _ = feeder.join();
        let end = output
            .stdout
            .windows(4)
            .position(|part| part == b"\r\n\r\n");
        let (head, content) = output.stdout.split_at(end.unwrap_or(0));
        let head = String::from_utf8_lossy(head).into_owned();
        let status = head.lines().find_map(|line| line.strip_prefix("Status: "));
        let others = head.lines().filter(|line| !line.starts_with("Status: "));
        let mut text = format!("HTTP/1.1 {}\r\n", status.unwrap_or("200 OK"));
        others.for_each(|line| text.extend([line, "\r\n"]));
        let content = content.get(4..).unwrap_or_default();
        let length = content.len().to_string();
        text.extend(["Content-Length: ", &length, "\r\nConnection: close\r\n\r\n"]);
        stream.write_all(text.as_bytes())?;
        stream.write_all(content)
    }
}

fn chunks(reader: &mut BufReader<TcpStream>) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let size = u64::from_str_radix(line.trim(), 16).unwrap_or(0);
        reader.take(size).read_to_end(&mut body)?;
        reader.read_line(&mut String::new())?;
        if size == 0 {
            return Ok(body);
        }
    }
}
