//! One client: plain HTTP/1.1 on one connection, written by hand so that its own cost is small.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::payload::Payload;
use super::service::BenchService;

/// Lock, get, post, unlock.
pub(crate) const STEPS: usize = 4;

pub(crate) struct Client {
    stream: TcpStream,
    path: String,
    authorization: String,
    number: usize,
    cycles: usize,
    buffer: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(service: &BenchService, number: usize) -> io::Result<Self> {
        let stream = TcpStream::connect(service.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_mins(1)))?;
        Ok(Self {
            stream,
            path: service.path(number),
            authorization: service.authorization.clone(),
            number,
            cycles: 0,
            buffer: vec![0; 256 * 1024],
        })
    }

    pub(crate) fn cycle(&mut self, payload: &mut Payload) -> io::Result<[Duration; STEPS]> {
        self.cycles += 1;
        let id = format!("{:08x}-0000-4000-8000-{:012x}", self.number, self.cycles);
        let lock = format!(
            "{{\"ID\":\"{id}\",\"Operation\":\"OperationTypeApply\",\"Info\":\"\",\"Who\":\"bench@example.io\",\
             \"Version\":\"1.11.4\",\"Created\":\"2026-11-15T18:52:29.245229756Z\",\"Path\":\"\"}}"
        );
        let (path, posted) = (self.path.clone(), format!("{}?ID={id}", self.path));
        let mut took = [Duration::ZERO; STEPS];
        took[0] = self.request("LOCK", &path, lock.as_bytes(), &[200])?;
        took[1] = self.request("GET", &path, b"", &[200, 204, 404])?;
        took[2] = self.request("POST", &posted, payload.next(), &[200])?;
        took[3] = self.request("UNLOCK", &path, lock.as_bytes(), &[200])?;
        Ok(took)
    }

    fn request(
        &mut self,
        method: &str,
        path: &str,
        body: &[u8],
        expected: &[u16],
    ) -> io::Result<Duration> {
        let length = if body.is_empty() {
            String::new()
        } else {
            format!(
                "Content-Type: application/json\r\nContent-Length: {}\r\n",
                body.len()
            )
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: Go-http-client/1.1\r\n{length}\
             Authorization: {}\r\nAccept-Encoding: gzip\r\n\r\n",
            self.authorization
        );
        let begun = Instant::now();
        if body.len() < 16 * 1024 {
            self.stream.write_all(&[head.as_bytes(), body].concat())?;
        } else {
            self.stream.write_all(head.as_bytes())?;
            self.stream.write_all(body)?;
        }
        let status = self.answer()?;
        if expected.contains(&status) {
            return Ok(begun.elapsed());
        }
        Err(io::Error::other(format!("{method} {path}: {status}")))
    }

    /// Reads a whole answer and returns only its status.
    fn answer(&mut self) -> io::Result<u16> {
        let mut have = 0;
        let end = loop {
            let read = self.stream.read(&mut self.buffer[have..])?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            have += read;
            if let Some(end) = find(&self.buffer[..have], b"\r\n\r\n") {
                break end + 4;
            }
        };
        let head = String::from_utf8_lossy(&self.buffer[..end]).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| io::Error::other("an answer without a status"))?;
        if let Some(length) = header(&head, "content-length") {
            let mut left = length
                .parse::<usize>()
                .unwrap_or(0)
                .saturating_sub(have - end);
            while left > 0 {
                let most = left.min(self.buffer.len());
                let read = self.stream.read(&mut self.buffer[..most])?;
                if read == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                left -= read;
            }
        } else if header(&head, "transfer-encoding") == Some("chunked") {
            // Only the last chunk ends like this.
            let mut tail = self.buffer[end..have].to_vec();
            while !tail.ends_with(b"0\r\n\r\n") {
                let read = self.stream.read(&mut self.buffer)?;
                if read == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                tail.extend_from_slice(&self.buffer[..read]);
                let keep = tail.len().saturating_sub(8);
                tail.drain(..keep);
            }
        }
        Ok(status)
    }
}

fn header<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    head.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        .map(str::trim)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}
