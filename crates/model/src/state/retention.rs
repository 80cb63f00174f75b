//! Which versions of a state expire: never the newest, a pinned one, or one that a remaining version is based on. Also
//! how many refused writes are kept.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

/// Versions beyond either limit expire; without limits none do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionPolicy {
    pub max_age: Option<SignedDuration>,
    /// The number of newest versions to keep.
    pub max_count: Option<usize>,
}

/// A version, with the fields that this decision needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VersionAge {
    pub version: i64,
    pub created_at: Timestamp,
    pub pinned_until: Option<Timestamp>,
    /// The version that it is stored as a difference to.
    pub base: Option<i64>,
}

/// The versions that expire, oldest first. `versions` are all versions of one state, oldest first.
pub fn expired(versions: &[VersionAge], policy: &RetentionPolicy, now: Timestamp) -> Vec<i64> {
    let mut needed = BTreeSet::new();
    let mut going = Vec::new();
    for (newer, version) in versions.iter().rev().enumerate() {
        let old = policy
            .max_age
            .is_some_and(|limit| now.duration_since(version.created_at) > limit);
        let many = policy.max_count.is_some_and(|limit| newer >= limit);
        let pinned = version.pinned_until.is_some_and(|until| until > now);
        let stays = newer == 0 || pinned || !(old || many);
        if stays || needed.contains(&version.version) {
            needed.extend(version.base);
        } else {
            going.push(version.version);
        }
    }
    going.reverse();
    going
}

/// The maximum number, and total size in bytes, of refused writes that are kept per state.
pub const REFUSED_COUNT: usize = 20;
pub const REFUSED_BYTES: u64 = 128 * 1024 * 1024;

/// The number of a state's refused writes to keep. `sizes` are their sizes, newest first. The newest is always kept.
pub fn refused_that_stay(sizes: &[u64]) -> usize {
    let mut bytes = 0_u64;
    let newest = sizes.iter().take(REFUSED_COUNT);
    let stay = newest.take_while(|size| {
        bytes = bytes.saturating_add(**size);
        bytes <= REFUSED_BYTES
    });
    stay.count().max(1).min(sizes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refused_writes_that_stay() {
        assert_eq!(refused_that_stay(&[]), 0);
        assert_eq!(refused_that_stay(&[u64::MAX, 1]), 1);
        assert_eq!(refused_that_stay(&[1, REFUSED_BYTES, 1]), 1);
        assert_eq!(refused_that_stay(&[1, REFUSED_BYTES - 1, 1]), 2);
        assert_eq!(refused_that_stay(&[0; 30]), REFUSED_COUNT);
    }

    fn at(day: i64) -> Timestamp {
        Timestamp::from_second(day * 86_400).unwrap()
    }

    /// Version n was created on day n.
    fn version(version: i64) -> VersionAge {
        VersionAge {
            version,
            created_at: at(version),
            pinned_until: None,
            base: None,
        }
    }

    fn policy(days: Option<i64>, count: Option<usize>) -> RetentionPolicy {
        RetentionPolicy {
            max_age: days.map(|days| SignedDuration::from_hours(days * 24)),
            max_count: count,
        }
    }

    #[track_caller]
    fn check(versions: &[VersionAge], policy: RetentionPolicy, expected: &[i64]) {
        assert_eq!(expired(versions, &policy, at(10)), expected);
    }

    #[test]
    fn age_and_count() {
        let versions: Vec<_> = (1..=6).map(version).collect();
        check(&versions, policy(None, None), &[]);
        check(&versions, policy(Some(6), None), &[1, 2, 3]);
        check(&versions, policy(None, Some(2)), &[1, 2, 3, 4]);
        check(&versions, policy(Some(8), Some(4)), &[1, 2]);
        check(&[], policy(Some(1), Some(1)), &[]);
    }

    #[test]
    fn the_newest_stays_whatever_its_age() {
        let versions: Vec<_> = (1..=3).map(version).collect();
        check(&versions, policy(Some(0), None), &[1, 2]);
        check(&versions, policy(None, Some(0)), &[1, 2]);
    }

    /// After a jump back nothing is old; after a jump forward all but the newest expire.
    #[test]
    fn a_clock_that_jumps_never_takes_the_newest() {
        let versions: Vec<_> = (1..=3).map(version).collect();
        let policy = policy(Some(1), None);
        assert_eq!(expired(&versions, &policy, at(0)), [0; 0]);
        assert_eq!(expired(&versions, &policy, at(-300_000)), [0; 0]);
        assert_eq!(expired(&versions, &policy, at(300_000)), [1, 2]);
    }

    #[test]
    fn a_pin_holds_until_its_day() {
        let mut versions: Vec<_> = (1..=4).map(version).collect();
        versions[0].pinned_until = Some(at(11));
        versions[1].pinned_until = Some(at(9));
        check(&versions, policy(None, Some(1)), &[2, 3]);
    }

    #[test]
    fn what_another_builds_on_stays_with_it() {
        let mut versions: Vec<_> = (1..=6).map(version).collect();
        for n in [2, 3, 5] {
            versions[n].base = Some(versions[n].version - 1);
        }
        // 6 is based on 5, which is complete; 4 → 3 → 2 expire together.
        check(&versions, policy(None, Some(1)), &[1, 2, 3, 4]);
        check(&versions, policy(None, Some(3)), &[1]);
    }
}
