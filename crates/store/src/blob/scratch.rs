//! Temporary bytes on disk: sealed under a key that exists only in memory, in a file without a name. They vanish with
//! the process, and what remains of them on a disk cannot be read.
//!
//! Not here: data that must outlive a process (`disk`).

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::crypto::Key;
use crate::crypto::{open, seal};

/// How many bytes are sealed at a time.
const BLOCK: usize = 1024 * 1024;

#[derive(Debug)]
pub struct ScratchFile {
    file: File,
    key: Key,
    /// The length of each sealed block.
    blocks: Vec<usize>,
    length: usize,
}

impl ScratchFile {
    /// The directory must exist.
    pub fn new(dir: &Path) -> io::Result<Self> {
        let key = Key::random().ok_or_else(|| io::Error::other("no random bytes"))?;
        let name = uuid::Uuid::new_v4().simple().to_string();
        let path = dir.join(format!("scratch-{name}"));
        let mut options = File::options();
        let options = options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(&path)?;
        fs::remove_file(&path)?;
        Ok(Self {
            file,
            key,
            blocks: Vec::new(),
            length: 0,
        })
    }

    pub fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        for block in bytes.chunks(BLOCK) {
            let context = self.blocks.len().to_le_bytes();
            let sealed = seal(&self.key, &context, block);
            let sealed = sealed.ok_or_else(|| io::Error::other("no random bytes"))?;
            self.file.write_all(&sealed)?;
            self.blocks.push(sealed.len());
            self.length += block.len();
        }
        Ok(())
    }

    pub fn length(&self) -> usize {
        self.length
    }

    /// Everything that was added.
    pub fn read(mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.length);
        self.file.rewind()?;
        for (number, length) in self.blocks.iter().enumerate() {
            let mut sealed = vec![0; *length];
            self.file.read_exact(&mut sealed)?;
            let block = open(&self.key, &number.to_le_bytes(), sealed);
            bytes.extend_from_slice(&block.map_err(io::Error::other)?);
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_back_as_it_was_and_lies_nowhere_in_clear() {
        let dir = tempfile::tempdir().unwrap();
        let mut scratch = ScratchFile::new(dir.path()).unwrap();
        let large = b"a secret of a state".repeat(100_000);
        scratch.add(b"{").unwrap();
        scratch.add(&large).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let mut on_disk = Vec::new();
        scratch.file.rewind().unwrap();
        scratch.file.read_to_end(&mut on_disk).unwrap();
        assert!(!on_disk.windows(8).any(|part| part == b"a secret"));
        assert_eq!(scratch.length(), large.len() + 1);
        assert_eq!(scratch.read().unwrap(), [b"{", &large[..]].concat());
    }
}
