//! Keys: the master keys that a person keeps, the data keys that they wrap, and what data keys seal.
//!
//! Here: reading, creating and rotating keys, sealing small pieces, keyed digests.
//!
//! Not here: the cipher (`crypto`), the files that keys are stored in (`blob`), sealed versions (`state`).

pub(crate) mod data_keys;
pub(crate) mod keyring;
pub(crate) mod sealing;
