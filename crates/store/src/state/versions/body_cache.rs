//! A cache of the newest bodies: an engine reads a state, then writes the next one, which is stored as a difference.
//! Bounded by bytes. Bodies were verified before they were cached.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use super::Content;
use crate::crypto::Digest;

const MOST_BYTES: usize = 24 * 1024 * 1024;
/// Larger bodies would evict everything else.
const LARGEST: usize = 4 * 1024 * 1024;

/// Bodies by the digest of their frame.
#[derive(Debug, Default)]
pub(crate) struct BodyCache(Mutex<CachedBodies>);

#[derive(Default)]
struct CachedBodies {
    contents: HashMap<Digest, (u64, Content)>,
    /// By the time of their last use.
    order: BTreeMap<u64, Digest>,
    uses: u64,
    bytes: usize,
}

impl BodyCache {
    pub(crate) fn get(&self, digest: &Digest) -> Option<Content> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let content = kept.remove(digest)?;
        kept.insert(*digest, content.clone());
        Some(content)
    }

    pub(crate) fn put(&self, digest: Digest, content: &Content) {
        if content.body.len() > LARGEST {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.remove(&digest);
        kept.insert(digest, content.clone());
        while kept.bytes > MOST_BYTES {
            let Some((_, oldest)) = kept.order.first_key_value() else {
                break;
            };
            let oldest = *oldest;
            kept.remove(&oldest);
        }
    }

    /// Removes a body that is not the newest any more.
    pub(super) fn forget(&self, digest: &Digest) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.remove(digest);
    }
}

impl CachedBodies {
    fn insert(&mut self, digest: Digest, content: Content) {
        self.uses += 1;
        self.bytes += content.body.len();
        self.order.insert(self.uses, digest);
        self.contents.insert(digest, (self.uses, content));
    }

    fn remove(&mut self, digest: &Digest) -> Option<Content> {
        let (used, content) = self.contents.remove(digest)?;
        self.order.remove(&used);
        self.bytes -= content.body.len();
        Some(content)
    }
}

impl std::fmt::Debug for CachedBodies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bodies, {} bytes", self.contents.len(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_longest_unused_go_first() {
        let recent = BodyCache::default();
        let of_size = |size| Content {
            body: Arc::new(vec![0; size]),
            secret_paths: Arc::default(),
        };
        let body = of_size(LARGEST);
        for number in 0..6 {
            recent.put([number; 32], &body);
        }
        assert!(recent.get(&[0; 32]).is_some());
        recent.put([6; 32], &body);
        let left: Vec<u8> = (0..7).filter(|n| recent.get(&[*n; 32]).is_some()).collect();
        assert_eq!(left, [0, 2, 3, 4, 5, 6]);
        recent.forget(&[4; 32]);
        assert!(recent.get(&[4; 32]).is_none());
        recent.put([9; 32], &of_size(LARGEST + 1));
        assert!(recent.get(&[9; 32]).is_none());
    }
}
