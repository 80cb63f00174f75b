//! One cheap pass over a text beside the parser: what would cost it its stack or more than linear time
//! is refused before, and what is left open is found after, where the parser only says "somewhere here".
//!
//! Not here: whether the text is HCL at all; on what is none, the parser stops by itself.

/// Brackets, blocks and templates inside each other.
const MAX_DEPTH: usize = 48;
/// The parser compares each key of an object with all before it.
const MAX_COMPARISONS: usize = 12_000_000;

/// Why a text is not even parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Excess {
    pub(crate) at: usize,
    kind: ExcessKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExcessKind {
    Depth,
    Entries,
}

impl Excess {
    pub(crate) fn message(&self) -> String {
        match self.kind {
            ExcessKind::Depth => format!("nested deeper than {MAX_DEPTH} levels"),
            ExcessKind::Entries => "too many entries in objects".to_owned(),
        }
    }
}

enum Frame<'a> {
    /// An object: its entries so far, and whether something stands since the last separator.
    Object {
        entries: usize,
        pending: bool,
    },
    /// A block's body, brackets or parentheses.
    Group,
    /// `${ … }` or `%{ … }`.
    Template,
    Quote,
    Heredoc {
        delimiter: &'a str,
    },
}

pub(crate) fn check(text: &str) -> Result<(), Excess> {
    Scan::new(text).run()
}

/// What was opened and never closed, or not by its like: where, and what to say.
pub(crate) fn left_open(text: &str) -> Option<(usize, String)> {
    let mut scan = Scan::new(text);
    scan.run().ok()?;
    if scan.unclosed.is_none() {
        let at = *scan.opened.last()?;
        scan.unclosed = Some((at, None));
    }
    let (at, closer) = scan.unclosed?;
    let opener = match text.get(at..)? {
        rest if rest.starts_with("<<") => return Some((at, "this text has no end".to_owned())),
        rest if rest.starts_with("/*") => return Some((at, "this comment has no end".to_owned())),
        rest if rest.starts_with(['$', '%']) => rest.get(..2)?,
        rest => rest.get(..1)?,
    };
    Some(match (opener, closer) {
        ("\"", _) => (at, "this string is not closed".to_owned()),
        (opener, Some(closer)) => (at, format!("this `{opener}` is closed by `{closer}`")),
        (opener, None) => (at, format!("this `{opener}` is not closed")),
    })
}

struct Scan<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    frames: Vec<Frame<'a>>,
    /// Where each frame was opened.
    opened: Vec<usize>,
    /// The first opener without its closer, and what stood in its place.
    unclosed: Option<(usize, Option<char>)>,
    comparisons: usize,
    /// The word or string that ends just before here: a `{` after one opens a block.
    word: Option<&'a str>,
}

impl<'a> Scan<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            bytes: text.as_bytes(),
            at: 0,
            frames: Vec::new(),
            opened: Vec::new(),
            unclosed: None,
            comparisons: 0,
            word: None,
        }
    }

    /// Leaves the innermost frame.
    fn pop(&mut self) {
        self.frames.pop();
        self.opened.pop();
    }

    fn run(&mut self) -> Result<(), Excess> {
        while self.at < self.bytes.len() {
            match self.frames.last() {
                Some(Frame::Quote) => self.quoted()?,
                Some(Frame::Heredoc { delimiter }) => {
                    let delimiter = *delimiter;
                    self.heredoc(delimiter)?;
                }
                _ => self.code()?,
            }
        }
        Ok(())
    }

    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    fn push(&mut self, frame: Frame<'a>, width: usize) -> Result<(), Excess> {
        if self.frames.len() >= MAX_DEPTH {
            return Err(Excess {
                at: self.at,
                kind: ExcessKind::Depth,
            });
        }
        self.frames.push(frame);
        self.opened.push(self.at);
        self.at += width;
        Ok(())
    }

    /// Whether a template marker stands here; an escaped one is passed over.
    fn marker(&mut self) -> Result<bool, Excess> {
        let rest = self.rest();
        if rest.starts_with(b"$${") || rest.starts_with(b"%%{") {
            self.at += 3;
            return Ok(true);
        }
        if rest.starts_with(b"${") || rest.starts_with(b"%{") {
            self.word = None;
            self.push(Frame::Template, 2)?;
            return Ok(true);
        }
        Ok(false)
    }

    fn quoted(&mut self) -> Result<(), Excess> {
        match self.bytes[self.at] {
            b'\\' => self.at += 2,
            b'"' => {
                self.pop();
                self.at += 1;
                self.word = Some("\"");
            }
            byte => {
                if byte == b'\n' && self.unclosed.is_none() {
                    self.unclosed = self.opened.last().map(|at| (*at, None));
                }
                if !self.marker()? {
                    self.at += 1;
                    self.pass(|byte| !matches!(byte, b'"' | b'\\' | b'$' | b'%' | b'\n'));
                }
            }
        }
        Ok(())
    }

    /// Goes on over what needs no look.
    fn pass(&mut self, plain: impl Fn(u8) -> bool) {
        let rest = self.rest();
        let end = rest.iter().position(|byte| !plain(*byte));
        self.at += end.unwrap_or(rest.len());
    }

    /// A closing bracket ends the innermost frame, and should be its like.
    fn close(&mut self, closer: u8) {
        let opener = self.opened.last().and_then(|at| self.bytes.get(*at));
        let fits = match opener {
            Some(b'[') => closer == b']',
            Some(b'(') => closer == b')',
            Some(_) => closer == b'}',
            None => true,
        };
        if !fits && self.unclosed.is_none() {
            self.unclosed = self.opened.last().map(|at| (*at, Some(char::from(closer))));
        }
        self.pop();
    }

    fn heredoc(&mut self, delimiter: &str) -> Result<(), Excess> {
        let line_begins = self.at == 0 || self.bytes[self.at - 1] == b'\n';
        if line_begins {
            let blank = self
                .rest()
                .iter()
                .take_while(|b| matches!(b, b' ' | b'\t'))
                .count();
            let after = self.at + blank + delimiter.len();
            let ends = self.bytes.get(self.at + blank..after) == Some(delimiter.as_bytes())
                && !self.bytes.get(after).is_some_and(|b| is_word(*b));
            if ends {
                self.at = after;
                self.pop();
                self.word = None;
                return Ok(());
            }
        }
        if !self.marker()? {
            let line_ends = self.bytes[self.at] == b'\n';
            self.at += 1;
            if !line_ends {
                self.pass(|byte| !matches!(byte, b'$' | b'%' | b'\n'));
            }
        }
        Ok(())
    }

    fn code(&mut self) -> Result<(), Excess> {
        let rest = self.rest();
        let byte = self.bytes[self.at];
        if byte == b'#' || rest.starts_with(b"//") {
            self.at += rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
            return Ok(());
        }
        if rest.starts_with(b"/*") {
            let from = self.at + 2;
            let found = self.text.get(from..).and_then(|text| text.find("*/"));
            if found.is_none() && self.unclosed.is_none() {
                self.unclosed = Some((self.at, None));
            }
            self.at = found.map_or(self.bytes.len(), |end| from + end + 2);
            return Ok(());
        }
        if is_word(byte) {
            let length = rest.iter().take_while(|b| is_word(**b)).count();
            self.word = self.text.get(self.at..self.at + length).or(Some("?"));
            self.fill();
            self.at += length;
            return Ok(());
        }
        match byte {
            b' ' | b'\t' | b'\r' => self.pass(|byte| matches!(byte, b' ' | b'\t' | b'\r')),
            b'\n' | b',' => {
                self.word = None;
                self.at += 1;
                self.separate()?;
            }
            b'"' => {
                self.fill();
                self.push(Frame::Quote, 1)?;
            }
            b'{' => {
                self.fill();
                let block = self.word.is_some_and(|word| word != "in" && word != "if");
                self.word = None;
                let frame = if block {
                    Frame::Group
                } else {
                    Frame::Object {
                        entries: 0,
                        pending: false,
                    }
                };
                self.push(frame, 1)?;
            }
            b'[' | b'(' => {
                self.fill();
                self.word = None;
                self.push(Frame::Group, 1)?;
            }
            b'}' | b']' | b')' => {
                self.separate()?;
                self.close(byte);
                self.at += 1;
                self.word = None;
            }
            b'<' if rest.starts_with(b"<<") => self.open_heredoc()?,
            _ => {
                self.word = None;
                self.fill();
                self.at += 1;
            }
        }
        Ok(())
    }

    fn open_heredoc(&mut self) -> Result<(), Excess> {
        self.fill();
        self.word = None;
        let mut from = self.at + 2;
        if self.bytes.get(from) == Some(&b'-') {
            from += 1;
        }
        let rest = self.bytes.get(from..).unwrap_or_default();
        let length = rest.iter().take_while(|b| is_word(**b)).count();
        let line_ends = matches!(rest.get(length), Some(b'\n' | b'\r'));
        match self.text.get(from..from + length) {
            Some(delimiter) if length > 0 && line_ends => {
                let width = from + length - self.at;
                self.push(Frame::Heredoc { delimiter }, width)
            }
            _ => {
                self.at += 2;
                Ok(())
            }
        }
    }

    /// Something stands in the entry that is open.
    fn fill(&mut self) {
        if let Some(Frame::Object { pending, .. }) = self.frames.last_mut() {
            *pending = true;
        }
    }

    /// An entry may end here.
    fn separate(&mut self) -> Result<(), Excess> {
        if let Some(Frame::Object { entries, pending }) = self.frames.last_mut()
            && *pending
        {
            *pending = false;
            self.comparisons += *entries;
            *entries += 1;
            if self.comparisons > MAX_COMPARISONS {
                return Err(Excess {
                    at: self.at.min(self.bytes.len().saturating_sub(1)),
                    kind: ExcessKind::Entries,
                });
            }
        }
        Ok(())
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') || byte >= 0x80
}
