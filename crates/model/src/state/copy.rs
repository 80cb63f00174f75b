//! Copies: versions of a state that lives in an engine's backend. terrane stored what it saw there. The backend alone
//! decides which write may follow, so only mixing copies with own versions is refused.

use super::push::{HeadView, LockView, PushRefusal, PushVerdict, PushView, check_lock};

/// Decides whether to accept a copy of the backend's current content. Any serial and lineage is allowed.
pub fn check_copy(
    head: Option<&HeadView<'_>>,
    head_is_copy: bool,
    lock: Option<&LockView<'_>>,
    push: &PushView<'_>,
) -> PushVerdict {
    if head.is_some_and(|head| head_is_copy && head.content == push.content) {
        return PushVerdict::Same;
    }
    match lock {
        // The state is locked here, so it does not live elsewhere.
        Some(lock) => PushVerdict::Refuse(PushRefusal::Locked {
            holder: lock.id.to_owned(),
        }),
        None => PushVerdict::Accept { mark: None },
    }
}

/// Decides about a write to a state whose newest version is a copy. Only a migration to this store may write it, since
/// the backend may have changed since the copy was made.
pub fn check_push_over_copy(lock: Option<&LockView<'_>>, push: &PushView<'_>) -> PushVerdict {
    let brings =
        push.surgery && lock.is_some_and(|lock| lock.operation == "migration destination state");
    match check_lock(lock, push) {
        Err(refusal) => PushVerdict::Refuse(refusal),
        Ok(()) if brings => PushVerdict::Accept { mark: None },
        Ok(()) => PushVerdict::Refuse(PushRefusal::Copy),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Contents;
    use super::*;

    const HEAD: HeadView<'_> = HeadView {
        serial: 7,
        lineage: "l",
        content: "a",
        contents: Contents::Resources,
    };

    fn push(content: &'static str, lock_id: Option<&'static str>) -> PushView<'static> {
        PushView {
            serial: 3,
            lineage: "other",
            content,
            contents: Contents::Nothing,
            lock_id,
            lock_ended: false,
            run: None,
            may_empty: false,
            surgery: true,
        }
    }

    fn lock(operation: &'static str) -> LockView<'static> {
        LockView {
            id: "1",
            operation,
            run: None,
        }
    }

    #[test]
    fn a_copy_may_be_anything_and_is_kept_once() {
        let accepted = PushVerdict::Accept { mark: None };
        assert_eq!(
            check_copy(Some(&HEAD), true, None, &push("b", None)),
            accepted
        );
        assert_eq!(
            check_copy(Some(&HEAD), true, None, &push("a", None)),
            PushVerdict::Same
        );
        // The bytes are the same, but it is new that the state lives elsewhere.
        assert_eq!(
            check_copy(Some(&HEAD), false, None, &push("a", None)),
            accepted
        );
    }

    #[test]
    fn a_copy_does_not_pass_a_lock() {
        let refused = PushVerdict::Refuse(PushRefusal::Locked {
            holder: "1".to_owned(),
        });
        let lock = lock("OperationTypeApply");
        assert_eq!(
            check_copy(Some(&HEAD), false, Some(&lock), &push("b", None)),
            refused
        );
    }

    #[test]
    fn only_who_brings_it_here_writes_over_a_copy() {
        let apply = lock("OperationTypeApply");
        let refused = PushVerdict::Refuse(PushRefusal::Copy);
        assert_eq!(
            check_push_over_copy(Some(&apply), &push("a", Some("1"))),
            refused
        );
        // Not even with force: the result would pass for the state, and the next plan would store a copy on top of it.
        let push_by_hand = lock("state-push");
        assert_eq!(
            check_push_over_copy(Some(&push_by_hand), &push("a", Some("1"))),
            refused
        );
        let import = lock("migration destination state");
        let accepted = PushVerdict::Accept { mark: None };
        assert_eq!(
            check_push_over_copy(Some(&import), &push("a", Some("1"))),
            accepted
        );
        let other = PushVerdict::Refuse(PushRefusal::Locked {
            holder: "1".to_owned(),
        });
        assert_eq!(check_push_over_copy(Some(&import), &push("a", None)), other);
    }
}
