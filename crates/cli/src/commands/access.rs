//! Commands about access: tokens, keys, holds and locks.

pub(crate) mod hold;
pub(crate) mod key;
pub(crate) mod lock;
pub(crate) mod token;
