//! What tests share: a project in a temporary directory, the real binary, the real engines.
//!
//! Not here: any stand-in. Engines that misbehave are shell scripts written by the test that needs one.

pub mod engines;
pub mod said;
mod terminal;
mod terrane;

pub use said::Said;
pub use terminal::Terminal;
pub use terrane::{Background, TestTerrane, kill};
