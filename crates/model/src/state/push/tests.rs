//! Which write may follow which head.

use proptest::prelude::*;

use super::*;

const HEAD: HeadView<'_> = HeadView {
    serial: 7,
    lineage: "l",
    content: "head",
    contents: Contents::Resources,
};
const LOCK: LockView<'_> = LockView {
    id: "L",
    operation: "OperationTypeApply",
    run: None,
};
const NEXT: PushView<'_> = PushView {
    serial: 8,
    lineage: "l",
    content: "next",
    contents: Contents::Resources,
    lock_id: None,
    lock_ended: false,
    run: None,
    may_empty: false,
    surgery: false,
};
const RUN: Option<RunId> = Some(RunId(44));

#[track_caller]
fn check(head: Option<HeadView<'_>>, lock: Option<LockView<'_>>, push: PushView<'_>, want: &str) {
    let seen = match check_push(head.as_ref(), lock.as_ref(), &push) {
        PushVerdict::Same => "same".to_owned(),
        PushVerdict::Accept { mark: None } => "accept".to_owned(),
        PushVerdict::Accept { mark: Some(mark) } => format!("accept, {}", mark.as_str()),
        PushVerdict::Refuse(why) => format!("refuse: {why}"),
    };
    assert_eq!(seen, want);
}

#[test]
fn order() {
    check(None, None, NEXT, "accept");
    check(Some(HEAD), None, NEXT, "accept");
    check(Some(HEAD), None, PushView { serial: 70, ..NEXT }, "accept");
    let taken = "refuse: serial 7 is taken by other content: two writers without a lock, or a push of the version before it";
    check(Some(HEAD), None, PushView { serial: 7, ..NEXT }, taken);
    let behind = "refuse: serial 6 is behind the head's 7";
    check(Some(HEAD), None, PushView { serial: 6, ..NEXT }, behind);
    let other = "refuse: lineage `m` is not the head's `l`: this is another state";
    check(
        Some(HEAD),
        None,
        PushView {
            lineage: "m",
            ..NEXT
        },
        other,
    );
    let none = "refuse: lineage `` is not the head's `l`: this is another state";
    check(
        Some(HEAD),
        None,
        PushView {
            lineage: "",
            ..NEXT
        },
        none,
    );
    let legacy = HeadView {
        lineage: "",
        ..HEAD
    };
    check(
        Some(legacy),
        None,
        PushView {
            lineage: "m",
            ..NEXT
        },
        "accept",
    );
}

#[test]
fn an_empty_head_accepts_another_lineage() {
    let empty = HeadView {
        contents: Contents::Nothing,
        ..HEAD
    };
    check(
        Some(empty),
        None,
        PushView {
            lineage: "m",
            serial: 1,
            ..NEXT
        },
        "accept",
    );
    let unknown = HeadView {
        contents: Contents::Encrypted,
        ..HEAD
    };
    let other = "refuse: lineage `m` is not the head's `l`: this is another state";
    check(
        Some(unknown),
        None,
        PushView {
            lineage: "m",
            ..NEXT
        },
        other,
    );
}

#[test]
fn a_repeated_request_is_answered_as_the_first() {
    let again = PushView {
        serial: 7,
        content: "head",
        ..NEXT
    };
    check(Some(HEAD), None, again, "same");
    check(Some(HEAD), Some(LOCK), again, "same");
    check(
        Some(HEAD),
        None,
        PushView {
            lock_id: Some("released"),
            ..again
        },
        "same",
    );
}

#[test]
fn locks() {
    let with = |id| PushView {
        lock_id: Some(id),
        ..NEXT
    };
    check(Some(HEAD), Some(LOCK), with("L"), "accept");
    let locked = "refuse: the state is locked by lock `L`, and this write does not carry it";
    check(Some(HEAD), Some(LOCK), NEXT, locked);
    check(Some(HEAD), Some(LOCK), with("K"), locked);
    let lost = "refuse: the write carries lock `K`, which is not held any more";
    let ended = PushView {
        lock_ended: true,
        ..with("K")
    };
    check(Some(HEAD), Some(LOCK), ended, lost);
    check(Some(HEAD), None, ended, lost);
    check(Some(HEAD), None, with("K"), lost);
    check(None, None, with("K"), lost);
}

#[test]
fn a_run_writes_under_its_own_lock_only() {
    let without = "refuse: run r44 writes without its lock";
    let write = PushView { run: RUN, ..NEXT };
    check(Some(HEAD), None, write, without);
    let write = PushView {
        lock_id: Some("L"),
        ..write
    };
    check(Some(HEAD), Some(LOCK), write, without);
    check(
        Some(HEAD),
        Some(LockView {
            run: Some(RunId(43)),
            ..LOCK
        }),
        write,
        without,
    );
    check(
        Some(HEAD),
        Some(LockView { run: RUN, ..LOCK }),
        write,
        "accept",
    );
}

#[test]
fn nobody_else_writes_under_the_lock_of_a_run() {
    let lock = Some(LockView { run: RUN, ..LOCK });
    let client = PushView {
        lock_id: Some("L"),
        surgery: true,
        ..NEXT
    };
    let of_run = "refuse: lock `L` is that of run r44, and only that run writes under it";
    check(Some(HEAD), lock, client, of_run);
    check(None, lock, client, of_run);
    let other = PushView {
        run: Some(RunId(43)),
        ..client
    };
    let without = "refuse: run r43 writes without its lock";
    check(Some(HEAD), lock, other, without);
    let locked = "refuse: the state is locked by lock `L`, and this write does not carry it";
    check(Some(HEAD), lock, NEXT, locked);
    let again = PushView {
        content: "head",
        ..client
    };
    check(Some(HEAD), lock, again, "same");
}

#[test]
fn emptied() {
    let empty = PushView {
        contents: Contents::Nothing,
        ..NEXT
    };
    check(Some(HEAD), None, empty, "accept, emptied");
    let outputs = PushView {
        contents: Contents::OutputsOnly,
        ..NEXT
    };
    check(Some(HEAD), None, outputs, "accept, emptied");
    check(None, None, empty, "accept");
    let lock = Some(LockView { run: RUN, ..LOCK });
    let by_run = PushView {
        run: RUN,
        lock_id: Some("L"),
        ..empty
    };
    let unplanned = "refuse: the write takes all resources away, but run r44's plan does not";
    check(Some(HEAD), lock, by_run, unplanned);
    check(
        Some(HEAD),
        lock,
        PushView {
            may_empty: true,
            ..by_run
        },
        "accept",
    );
}

#[test]
fn surgery() {
    let pushing = Some(LockView {
        operation: "state-push",
        ..LOCK
    });
    let migrating = Some(LockView {
        operation: "migration destination state",
        ..LOCK
    });
    let older = PushView {
        serial: 2,
        lock_id: Some("L"),
        surgery: true,
        ..NEXT
    };
    let other = PushView {
        lineage: "m",
        ..older
    };
    check(Some(HEAD), pushing, older, "accept, forced");
    check(Some(HEAD), pushing, other, "accept, forced");
    check(Some(HEAD), migrating, other, "accept, forced");
    let taken = "refuse: serial 7 is taken by other content: two writers without a lock, or a push of the version before it";
    let equal = PushView { serial: 7, ..older };
    check(Some(HEAD), pushing, equal, taken);
    let encrypted = PushView {
        contents: Contents::Encrypted,
        ..equal
    };
    check(Some(HEAD), pushing, encrypted, "accept, forced");
    check(Some(HEAD), migrating, encrypted, taken);
    let behind = "refuse: serial 2 is behind the head's 7";
    check(Some(HEAD), migrating, older, behind);
    check(Some(HEAD), Some(LOCK), older, behind);
    check(
        Some(HEAD),
        pushing,
        PushView {
            surgery: false,
            ..older
        },
        behind,
    );
}

fn word() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["", "a", "b"])
}

fn contents() -> impl Strategy<Value = Contents> {
    prop::sample::select(Contents::ALL.to_vec())
}

fn run() -> impl Strategy<Value = Option<RunId>> {
    prop::option::of((1_i64..3).prop_map(RunId))
}

prop_compose! {
    fn head()(serial in 0_u64..4, lineage in word(), content in word(), contents in contents())
        -> HeadView<'static> { HeadView { serial, lineage, content, contents } }
}

prop_compose! {
    fn lock()(id in word(), operation in prop::sample::select(vec!["", "state-push"]), run in run())
        -> LockView<'static> { LockView { id, operation, run } }
}

prop_compose! {
    fn push()(
        serial in 0_u64..4, lineage in word(), content in word(), contents in contents(),
        lock_id in prop::option::of(word()), lock_ended: bool, run in run(), may_empty: bool, surgery: bool,
    ) -> PushView<'static> {
        PushView { serial, lineage, content, contents, lock_id, lock_ended, run, may_empty, surgery }
    }
}

proptest! {
    #[test]
    fn what_never_passes(
        head in prop::option::of(head()), lock in prop::option::of(lock()), push in push(),
    ) {
        let PushVerdict::Accept { mark } = check_push(head.as_ref(), lock.as_ref(), &push) else {
            return Ok(());
        };
        // The carried lock is the current one, and its holder is the writer.
        prop_assert_eq!(lock.map(|lock| lock.id), push.lock_id);
        prop_assert_eq!(lock.and_then(|lock| lock.run), push.run);
        let Some(head) = head else { return Ok(()) };
        // The head advances on its own lineage, or the write was forced.
        let legacy = head.lineage.is_empty();
        if (legacy || push.lineage == head.lineage) && push.serial <= head.serial {
            prop_assert!(mark.is_some() && push.surgery);
            prop_assert!(push.serial < head.serial || push.contents == Contents::Encrypted);
        }
        if !legacy && push.lineage != head.lineage && head.contents != Contents::Nothing {
            prop_assert!(mark.is_some() && push.surgery);
        }
        // Resources do not disappear unnoticed.
        if head.contents == Contents::Resources && push.contents == Contents::Nothing {
            let seen = match push.run {
                Some(_) => push.may_empty,
                None => mark == Some(VersionMark::Emptied),
            };
            prop_assert!(seen);
        }
    }

    #[test]
    fn an_accepted_write_is_the_same_when_sent_again(
        head in prop::option::of(head()), lock in prop::option::of(lock()), push in push(),
    ) {
        if let PushVerdict::Accept { .. } = check_push(head.as_ref(), lock.as_ref(), &push) {
            let now = HeadView {
                serial: push.serial, lineage: push.lineage, content: push.content, contents: push.contents,
            };
            prop_assert_eq!(check_push(Some(&now), None, &push), PushVerdict::Same);
        }
    }
}
