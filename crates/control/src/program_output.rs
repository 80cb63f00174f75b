//! What engines and other programs print, for people: messages, the end of an output, progress lines, causes of errors.
//!
//! Not here: masking (`model::base::masking`), a run's logs (`run::logs`).

pub(crate) mod engine_messages;
pub(crate) mod output_tail;
pub(crate) mod progress_interval;
