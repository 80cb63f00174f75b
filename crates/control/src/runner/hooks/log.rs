//! Copies a hook's output to the run's log while it runs: line by line in the engines' format, without
//! secrets.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use model::base::masking::{Mask, MaskStream};
use serde_json::json;

pub(super) struct HookLog {
    raw: PathBuf,
    read: u64,
    stream: MaskStream,
    mask: Mask,
    /// The start of a line that is not complete yet.
    rest: Vec<u8>,
    file: File,
    name: String,
    lines: Vec<String>,
}

impl HookLog {
    pub(super) fn open(raw: &Path, log: &Path, name: &str, mask: &Mask) -> io::Result<Self> {
        match fs::remove_file(raw) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
            _ => {}
        }
        let mut options = File::options();
        Ok(Self {
            raw: raw.to_owned(),
            read: 0,
            stream: MaskStream::new(mask.clone()),
            mask: mask.clone(),
            rest: Vec::new(),
            file: options.create(true).append(true).mode(0o600).open(log)?,
            name: name.to_owned(),
            lines: Vec::new(),
        })
    }

    /// Writes a line that does not come from the hook.
    pub(super) fn say(&self, words: &str) {
        self.write(&self.mask.mask_text(words));
    }

    /// Copies new output. What cannot be read now is read later.
    pub(super) fn follow(&mut self) {
        if let Ok(new) = self.new_bytes() {
            self.rest.extend(self.stream.push(&new));
            self.whole_lines();
        }
    }

    /// The hook has exited. Returns all of its output, without secrets.
    pub(super) fn finish(mut self) -> Vec<String> {
        self.follow();
        let stream = std::mem::replace(&mut self.stream, MaskStream::new(Mask::default()));
        self.rest.extend(stream.finish());
        if !self.rest.is_empty() {
            self.rest.push(b'\n');
        }
        self.whole_lines();
        drop(fs::remove_file(&self.raw));
        self.lines
    }

    fn new_bytes(&mut self) -> io::Result<Vec<u8>> {
        let mut new = Vec::new();
        let mut raw = File::open(&self.raw)?;
        raw.seek(SeekFrom::Start(self.read))?;
        raw.read_to_end(&mut new)?;
        self.read += new.len() as u64;
        Ok(new)
    }

    fn whole_lines(&mut self) {
        let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
            return;
        };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        for line in whole.split(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(line).trim_end().to_owned();
            if !line.is_empty() {
                self.write(&line);
                self.lines.push(line);
            }
        }
    }

    fn write(&self, words: &str) {
        let line = json!({
            "@level": "info",
            "@message": words,
            "@timestamp": jiff::Timestamp::now().to_string(),
            "hook": self.name,
            "type": "log",
        });
        // A log line that cannot be written does not fail the hook.
        drop(writeln!(&self.file, "{line}"));
    }
}
