//! Locks: one winner, owned, fenced, idempotent.

use model::base::actor::Actor;
use model::state::ExpectedHead::{Any, Exactly};

use super::*;
use crate::StateWriter;
use crate::testing::{TestHome, body, lock_info, network};

fn told(result: Result<impl std::fmt::Debug, impl std::fmt::Display>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(err) => err.to_string(),
    }
}

#[tokio::test]
async fn of_many_one_gets_the_lock() {
    let home = TestHome::new();
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..64 {
        // A handle of its own on the same files, as another process would have.
        let store = home.open().await;
        tasks.spawn(async move {
            let info = lock_info(&format!("lock-{number}"));
            match store.lock_acquire(&network(), &info, None, Any).await {
                Ok(epoch) => Some((info.id, epoch)),
                Err(AcquireLockError::Held { .. }) => None,
                Err(err) => panic!("{err}"),
            }
        });
    }
    let won: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    let store = home.open().await;
    let held = store
        .state_get(&network())
        .await
        .unwrap()
        .unwrap()
        .lock
        .unwrap();
    assert_eq!(won, [(held.info.id, LockEpoch(1))]);
}

#[tokio::test]
async fn who_asks_again_is_told_the_same() {
    let home = TestHome::new();
    let store = home.open().await;
    let acquire = async |id: &str| {
        told(
            store
                .lock_acquire(&network(), &lock_info(id), None, Any)
                .await,
        )
    };
    let release = async |id: &str| told(store.lock_release(&network(), id).await);
    assert_eq!(release("a").await, "Before", "nothing was ever locked");
    assert_eq!(acquire("a").await, "LockEpoch(1)");
    assert_eq!(acquire("a").await, "LockEpoch(1)");
    let held = "state `p/network` is locked by me@here (apply), lock `a`";
    assert_eq!(acquire("b").await, held);
    assert_eq!(release("b").await, held);
    assert_eq!(release("a").await, "Now");
    assert_eq!(release("a").await, "Before");
    assert_eq!(
        acquire("a").await,
        "lock `a` on state `p/network` has ended already"
    );
    assert_eq!(acquire("b").await, "LockEpoch(2)");
    assert_eq!(
        release("a").await,
        "Before",
        "its repeated UNLOCK does not touch the next lock"
    );
    assert_eq!(acquire("c").await, held.replace("`a`", "`b`"));
}

#[tokio::test]
async fn the_holders_whole_description_is_kept() {
    let home = TestHome::new();
    let store = home.open().await;
    let text = r#"{"ID":"a","Operation":"o","Info":"i","Who":"w","Version":"v","Created":"c","Path":"p","New":[1]}"#;
    let info = LockInfo::from_json(text.as_bytes()).unwrap();
    store
        .lock_acquire(&network(), &info, Some(RunId(7)), Any)
        .await
        .unwrap();
    let lock = home
        .open()
        .await
        .state_get(&network())
        .await
        .unwrap()
        .unwrap()
        .lock
        .unwrap();
    assert_eq!(
        (lock.info.to_json().as_str(), lock.run),
        (text, Some(RunId(7)))
    );
}

#[tokio::test]
async fn a_seal_is_checked_by_the_statement_that_grants_the_lock() {
    let home = TestHome::new();
    let store = home.open().await;
    let acquire = async |id: &str, head| {
        told(
            store
                .lock_acquire(&network(), &lock_info(id), None, head)
                .await,
        )
    };
    let moved = "state `p/network` changed: expected version 1, found none";
    assert_eq!(acquire("a", Exactly(Some(1))).await, moved);
    assert_eq!(acquire("a", Exactly(None)).await, "LockEpoch(1)");
    store.lock_release(&network(), "a").await.unwrap();
    store
        .state_version_append(&network(), &StateWriter::default(), body(1))
        .await
        .unwrap();
    let moved = "state `p/network` changed: expected version none, found 1";
    assert_eq!(acquire("b", Exactly(None)).await, moved);
    assert_eq!(acquire("b", Exactly(Some(1))).await, "LockEpoch(2)");
}

#[tokio::test]
async fn the_locks_of_a_dead_run_end_together() {
    let home = TestHome::new();
    let store = home.open().await;
    for (state, run) in [("x", 7), ("y", 7), ("z", 8)] {
        let state = StateName::new("", state);
        store
            .lock_acquire(&state, &lock_info("a"), Some(RunId(run)), Any)
            .await
            .unwrap();
    }
    let released = store.lock_release_run(RunId(7)).await.unwrap();
    let names: Vec<_> = released
        .iter()
        .map(|(state, _)| state.to_string())
        .collect();
    assert_eq!(names, ["x", "y"]);
    assert!(store.lock_release_run(RunId(7)).await.unwrap().is_empty());
    let states = store.state_list().await.unwrap();
    let locked: Vec<_> = states.iter().filter(|row| row.lock.is_some()).collect();
    assert_eq!(locked.len(), 1);
}

#[tokio::test]
async fn only_the_last_locks_are_remembered() {
    let home = TestHome::new();
    let store = home.open().await;
    for number in 0..REMEMBERED + 16 {
        let id = format!("lock-{number}");
        store
            .lock_acquire(&network(), &lock_info(&id), None, Any)
            .await
            .unwrap();
        store.lock_release(&network(), &id).await.unwrap();
    }
    let rows = store
        .db
        .fetch_all("SELECT lock_id FROM lock_taken ORDER BY epoch", &[])
        .await;
    let rows = rows.unwrap();
    assert_eq!((rows.len(), rows[0].text(0).unwrap()), (32, "lock-16"));
}

#[tokio::test]
async fn a_lock_is_broken_with_a_record_or_not_at_all() {
    let ci = Actor::named("ci");
    let home = TestHome::new();
    let store = home.open().await;
    let state = network();
    let nothing = store.lock_break_recorded(&state, None, &ci, None).await;
    assert_eq!(nothing.unwrap(), None);

    let info = lock_info("a");
    let taken = store.lock_acquire(&state, &info, None, Any);
    taken.await.unwrap();
    let other = store.lock_break_recorded(&state, Some("b"), &ci, None);
    assert!(matches!(
        other.await.unwrap_err(),
        ReleaseLockError::Held { .. }
    ));
    assert_eq!(store.break_glass_list(&state).await.unwrap(), []);

    let broken = store.lock_break_recorded(&state, Some("a"), &ci, None);
    assert_eq!(broken.await.unwrap().unwrap().info, info);
    let again = store.lock_break_recorded(&state, Some("a"), &ci, None);
    assert_eq!(again.await.unwrap(), None, "a repeated request");
    let records = store.break_glass_list(&state).await.unwrap();
    assert_eq!(records.len(), 1);
    assert_eq!(
        (records[0].actor.name.as_str(), &records[0].reason),
        ("ci", &None)
    );
    assert_eq!(records[0].detail, "the lock of me@here (apply), lock `a`");
}

/// A script may give every lock the same id.
#[tokio::test]
async fn the_same_id_of_somebody_else_is_not_the_same_lock() {
    let home = TestHome::new();
    let store = home.open().await;
    let acquire = async |who: &str| {
        let who = who.to_owned();
        let info = LockInfo {
            who,
            ..lock_info("ci")
        };
        told(store.lock_acquire_outside(&network(), &info).await)
    };
    assert_eq!(acquire("job 1").await, "LockEpoch(1)");
    assert_eq!(acquire("job 1").await, "LockEpoch(1)");
    let held = "state `p/network` is locked by job 1 (apply), lock `ci`";
    assert_eq!(acquire("job 2").await, held);
}
