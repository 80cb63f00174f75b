//! What every error provides besides its message: its kind, and the next steps as data.
//!
//! Not here: how a next step is shown. The command line prints it as a hint; a page can show a link.

use std::error::Error;
use std::fmt;

/// How a caller treats an error: the command line chooses an exit code by it, a retry decides whether to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// A rule forbids it: a writer, a lock, a seal, a hold.
    Refused,
    /// The request itself is wrong.
    Usage,
    /// The home or a service does not respond. The same request may work later.
    Unavailable,
    /// The request names something that does not exist.
    NotFound,
    Failed,
}

/// One thing that a person can do about an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// A terrane command without the program's name (`run show c7`), and what it does (`shows its runs`).
    Command { line: String, effect: String },
    /// Anything else: an edit, a command of another program, a place to look.
    Advice(String),
}

/// `effect` completes a sentence whose subject is the command.
pub fn command(line: impl Into<String>, effect: impl Into<String>) -> NextStep {
    NextStep::Command {
        line: line.into(),
        effect: effect.into(),
    }
}

pub fn advice(text: impl Into<String>) -> NextStep {
    NextStep::Advice(text.into())
}

impl fmt::Display for NextStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command { line, effect } => write!(f, "`terrane {line}` {effect}"),
            Self::Advice(text) => f.write_str(text),
        }
    }
}

pub trait Explain: Error {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Failed
    }

    fn next_steps(&self) -> Vec<NextStep> {
        Vec::new()
    }

    fn is_refused(&self) -> bool {
        self.kind() == ErrorKind::Refused
    }

    fn is_unavailable(&self) -> bool {
        self.kind() == ErrorKind::Unavailable
    }

    /// All next steps as one sentence, where only text can be stored or shown.
    fn hint(&self) -> Option<String> {
        let steps: Vec<String> = self.next_steps().iter().map(ToString::to_string).collect();
        (!steps.is_empty()).then(|| steps.join("; "))
    }
}

impl Explain for std::io::Error {}

impl<E: Explain> Explain for Box<E> {
    fn kind(&self) -> ErrorKind {
        (**self).kind()
    }

    fn next_steps(&self) -> Vec<NextStep> {
        (**self).next_steps()
    }
}

/// An error and its causes, outermost first.
pub fn chain<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

/// The causes of an error, outermost first, without the error itself.
pub fn causes(error: &dyn Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(error.source(), |&error| error.source())
}

/// The causes of an error as texts, outermost first. A cause that only repeats the one above is left out.
pub fn cause_texts(error: &dyn Error) -> Vec<String> {
    let mut said = error.to_string();
    let mut texts = Vec::new();
    for cause in causes(error) {
        let words = cause.to_string();
        if !said.contains(&words) && !words.ends_with(&said) {
            texts.push(words.clone());
            said = words;
        }
    }
    texts
}

/// The text of the error itself, then those of its causes.
pub fn chain_texts(error: &dyn Error) -> Vec<String> {
    let mut texts = vec![error.to_string()];
    texts.extend(cause_texts(error));
    texts
}

/// An error with its causes, on one line. A cause that the text already contains is not repeated.
pub fn one_line(error: &dyn Error) -> String {
    causes(error).fold(error.to_string(), |text, cause| {
        let cause = cause.to_string();
        if text.contains(&cause) {
            text
        } else {
            format!("{text}: {cause}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    enum Outer {
        #[error("cannot read the state")]
        Read(#[source] Inner),
        #[error("stack `db` is held")]
        Held,
    }

    #[derive(Debug, thiserror::Error)]
    #[error("the disk is full")]
    struct Inner;

    impl Explain for Outer {
        fn kind(&self) -> ErrorKind {
            match self {
                Self::Read(_) => ErrorKind::Unavailable,
                Self::Held => ErrorKind::Refused,
            }
        }

        fn next_steps(&self) -> Vec<NextStep> {
            match self {
                Self::Read(_) => Vec::new(),
                Self::Held => vec![
                    command("hold list", "shows who holds it"),
                    advice("wait for them"),
                ],
            }
        }
    }

    #[test]
    fn next_steps_as_one_sentence() {
        assert_eq!(
            Outer::Held.hint().as_deref(),
            Some("`terrane hold list` shows who holds it; wait for them")
        );
        assert_eq!(Outer::Read(Inner).hint(), None);
        assert!(Outer::Held.is_refused() && Outer::Read(Inner).is_unavailable());
    }

    #[test]
    fn an_error_and_its_causes_on_one_line() {
        let error = Outer::Read(Inner);
        assert_eq!(one_line(&error), "cannot read the state: the disk is full");
        assert_eq!(chain(&error).count(), 2);
        assert_eq!(causes(&error).count(), 1);
    }

    #[test]
    fn causes_are_not_repeated() {
        #[derive(Debug, thiserror::Error)]
        #[error("{message}")]
        struct Failure {
            message: &'static str,
            source: Option<Box<Failure>>,
        }
        let chain = |message, source| Failure { message, source };
        let inner = chain("disk is full", None);
        let middle = chain("could not write: disk is full", Some(Box::new(inner)));
        let outer = chain("could not store serial 18", Some(Box::new(middle)));
        assert_eq!(cause_texts(&outer), ["could not write: disk is full"]);
        let inner = chain("error code 1544: not to be written", None);
        let middle = chain("not to be written", Some(Box::new(inner)));
        let outer = chain("could not open", Some(Box::new(middle)));
        assert_eq!(cause_texts(&outer), ["not to be written"]);
        assert_eq!(chain_texts(&outer), ["could not open", "not to be written"]);
    }
}
