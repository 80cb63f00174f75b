//! A cache of the newest bodies: an engine reads a state, then writes the next one, which is stored as a difference.
//! Bounded by bytes. Bodies were verified before they were cached.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use crate::crypto::Digest;

const MOST_BYTES: usize = 24 * 1024 * 1024;
/// Larger bodies would evict everything else.
const LARGEST: usize = 4 * 1024 * 1024;

/// Bodies by the digest of their frame.
#[derive(Debug, Default)]
pub(crate) struct BodyCache(Mutex<CachedBodies>);

#[derive(Default)]
struct CachedBodies {
    bodies: HashMap<Digest, (u64, Arc<Vec<u8>>)>,
    /// By the time of their last use.
    order: BTreeMap<u64, Digest>,
    uses: u64,
    bytes: usize,
}

impl BodyCache {
    pub(crate) fn get(&self, digest: &Digest) -> Option<Arc<Vec<u8>>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let body = kept.remove(digest)?;
        kept.insert(*digest, Arc::clone(&body));
        Some(body)
    }

    pub(crate) fn put(&self, digest: Digest, body: &Arc<Vec<u8>>) {
        if body.len() > LARGEST {
            return;
        }
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.remove(&digest);
        kept.insert(digest, Arc::clone(body));
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
    fn insert(&mut self, digest: Digest, body: Arc<Vec<u8>>) {
        self.uses += 1;
        self.bytes += body.len();
        self.order.insert(self.uses, digest);
        self.bodies.insert(digest, (self.uses, body));
    }

    fn remove(&mut self, digest: &Digest) -> Option<Arc<Vec<u8>>> {
        let (used, body) = self.bodies.remove(digest)?;
        self.order.remove(&used);
        self.bytes -= body.len();
        Some(body)
    }
}

impl std::fmt::Debug for CachedBodies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bodies, {} bytes", self.bodies.len(), self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_unused_go_first() {
        let recent = BodyCache::default();
        let body = Arc::new(vec![0; LARGEST]);
        for number in 0..6 {
            recent.put([number; 32], &body);
        }
        assert!(recent.get(&[0; 32]).is_some());
        recent.put([6; 32], &body);
        let left: Vec<u8> = (0..7).filter(|n| recent.get(&[*n; 32]).is_some()).collect();
        assert_eq!(left, [0, 2, 3, 4, 5, 6]);
        recent.forget(&[4; 32]);
        assert!(recent.get(&[4; 32]).is_none());
        recent.put([9; 32], &Arc::new(vec![0; LARGEST + 1]));
        assert!(recent.get(&[9; 32]).is_none());
    }
}
