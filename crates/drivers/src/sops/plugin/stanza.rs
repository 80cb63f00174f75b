//! Messages between age and its plugins: a line of arguments, then base64 lines of which the last is short.

use std::io::{self, BufRead, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use zeroize::Zeroizing;

/// The length of a full base64 line; a shorter line ends the body.
const WIDTH: usize = 64;

/// One message. Its body may be a key.
pub(super) struct Stanza {
    pub(super) tag: String,
    pub(super) args: Vec<String>,
    pub(super) body: Zeroizing<Vec<u8>>,
}

pub(super) fn write(out: &mut impl Write, tag: &str, args: &[&str], body: &[u8]) -> io::Result<()> {
    let words = [&[tag][..], args].concat().join(" ");
    let mut text = Zeroizing::new(format!("-> {words}\n"));
    let encoded = Zeroizing::new(STANDARD_NO_PAD.encode(body));
    let mut rest = encoded.as_str();
    while rest.len() >= WIDTH {
        let (line, after) = rest.split_at(WIDTH);
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text.push_str(rest);
    text.push('\n');
    out.write_all(text.as_bytes())?;
    out.flush()
}

pub(super) fn read(input: &mut impl BufRead) -> io::Result<Stanza> {
    let head = read_line(input)?;
    let mut words = head
        .strip_prefix("-> ")
        .ok_or(io::ErrorKind::InvalidData)?
        .split(' ')
        .map(str::to_owned);
    let tag = words.next().unwrap_or_default();
    let args: Vec<String> = words.collect();
    if tag.is_empty() || args.iter().any(String::is_empty) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut encoded = Zeroizing::new(String::new());
    loop {
        let line = read_line(input)?;
        encoded.push_str(&line);
        if line.len() < WIDTH {
            break;
        }
        if line.len() > WIDTH {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    let body = STANDARD_NO_PAD.decode(encoded.as_bytes());
    let body = Zeroizing::new(body.map_err(|_| io::ErrorKind::InvalidData)?);
    Ok(Stanza { tag, args, body })
}

fn read_line(input: &mut impl BufRead) -> io::Result<Zeroizing<String>> {
    let mut line = Zeroizing::new(String::new());
    input.read_line(&mut line)?;
    if line.pop() != Some('\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(length: usize, lines: usize) {
        let body: Vec<u8> = (0..=u8::MAX).cycle().take(length).collect();
        let mut text = Vec::new();
        write(&mut text, "recipient-stanza", &["0", "X25519"], &body).unwrap();
        assert_eq!(std::str::from_utf8(&text).unwrap().lines().count(), lines);
        let read = read(&mut text.as_slice()).unwrap();
        assert_eq!(
            (read.tag.as_str(), &*read.body),
            ("recipient-stanza", &body)
        );
        assert_eq!(read.args, ["0", "X25519"]);
    }

    #[test]
    fn what_is_written_is_read() {
        check(0, 2);
        check(1, 2);
        check(47, 2);
        check(48, 3); // a full line is followed by a shorter one that ends the body
        check(49, 3);
        check(1000, 22);
    }

    #[test]
    fn what_is_no_stanza_is_refused() {
        let long = format!("-> a\n{}\n\n", "A".repeat(65));
        for text in [
            "",
            "-> a\n",
            "-> a\nAA",
            "a\n\n",
            "-> a  b\n\n",
            "-> \n\n",
            "-> a\n?\n",
            &long,
        ] {
            assert!(read(&mut text.as_bytes()).is_err(), "{text:?}");
        }
    }
}
