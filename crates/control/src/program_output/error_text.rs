//! Errors as text for logs and reports.

/// An error with its causes, on one line. A cause that the text already contains is not repeated.
pub(crate) fn one_line(err: &dyn std::error::Error) -> String {
    let mut text = err.to_string();
    let mut cause = err.source();
    while let Some(source) = cause {
        let more = source.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = source.source();
    }
    text
}
