//! What clients of the server do with a state: read, lock, write, unlock, delete, and what they are refused.

use control::state::client_access::{ClientAccess, WriteOutcome};
use control::state::queries;
use control::state::run_access::StateAccessError;
use model::state::RefusedRequest;
use model::state::break_glass::BreakGlassAction;
use model::state::token::TokenScope;
use model::state::{PushRefusal, VersionMark};

use crate::states::{a, body, client, client_of, lock, open_acts, other, value, written};
use crate::world::World;

async fn refusals(world: &World) -> Vec<RefusedRequest> {
    queries::refusals(&world.control, Some(&a(world)))
        .await
        .unwrap()
}

fn refusal(refused: Result<WriteOutcome, StateAccessError>) -> PushRefusal {
    match refused.unwrap_err() {
        StateAccessError::Refused { source, .. } => source,
        err => panic!("{err}"),
    }
}

/// Another client on the same state.
async fn second(world: &World) -> ClientAccess {
    client(world, "second", TokenScope::Write).await
}

#[tokio::test]
async fn a_state_that_nobody_wrote_is_empty() {
    let world = World::single().await;
    let client = client(&world, "ci", TokenScope::Read).await;
    assert!(client.read().await.unwrap().is_none());
}

#[tokio::test]
async fn a_client_reads_the_bytes_that_were_written() {
    let (_world, client) = written(&["1", "2"]).await;
    let (version, bytes) = client.read().await.unwrap().unwrap();
    assert_eq!((version.serial, &*bytes), (2, &body(2, "2")));
}

#[tokio::test]
async fn the_holder_of_the_lock_writes_under_it() {
    let (world, client) = written(&["1"]).await;
    client.lock(&lock("x")).await.unwrap();
    let done = client
        .write(Some("x".to_owned()), body(2, "2"))
        .await
        .unwrap();
    assert_eq!(done, WriteOutcome::New);
    assert_eq!(value(&world).await, "2");
}

#[tokio::test]
async fn a_repeated_write_changes_nothing() {
    let (world, client) = written(&["1"]).await;
    let done = client.write(None, body(1, "1")).await.unwrap();
    assert_eq!(
        (done, world.head("a").await.unwrap().version),
        (WriteOutcome::Same, 1)
    );
}

#[tokio::test]
async fn a_write_without_the_lock_of_another_client_is_refused() {
    let (world, client) = written(&["1"]).await;
    client.lock(&lock("x")).await.unwrap();
    let refused = second(&world)
        .await
        .write(None, body(2, "2"))
        .await
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "state `demo/a` is locked by bob@laptop (apply), lock `x`"
    );
    assert_eq!(value(&world).await, "1");
}

#[tokio::test]
async fn a_second_lock_is_refused_with_the_name_of_the_holder() {
    let (world, client) = written(&["1"]).await;
    client.lock(&lock("x")).await.unwrap();
    let refused = second(&world).await.lock(&lock("y")).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "state `demo/a` is locked by bob@laptop (apply), lock `x`"
    );
}

#[tokio::test]
async fn a_lock_is_released_by_its_id_only() {
    let (_world, client) = written(&["1"]).await;
    client.lock(&lock("x")).await.unwrap();
    let refused = client.unlock(Some(&lock("y"))).await.unwrap_err();
    assert!(
        matches!(refused, StateAccessError::NotYours { .. }),
        "{refused}"
    );
}

#[tokio::test]
async fn a_lock_is_released_twice_without_harm() {
    let (_world, client) = written(&["1"]).await;
    client.lock(&lock("x")).await.unwrap();
    client.unlock(Some(&lock("x"))).await.unwrap();
    client.unlock(Some(&lock("x"))).await.unwrap();
}

#[tokio::test]
async fn a_forced_unlock_is_recorded_without_a_reason() {
    let (world, client) = written(&["1"]).await;
    client.lock(&lock("x")).await.unwrap();
    second(&world).await.unlock(None).await.unwrap();
    let acts = open_acts(&world).await;
    assert_eq!(
        (acts[0].act, acts[0].actor.name.as_str()),
        (BreakGlassAction::LockBroken, "second")
    );
    assert_eq!(acts[0].reason, None);
}

#[tokio::test]
async fn an_ordinary_unlock_is_not_recorded() {
    let (world, client) = written(&["1"]).await;
    client.lock(&lock("x")).await.unwrap();
    client.unlock(Some(&lock("x"))).await.unwrap();
    assert_eq!(open_acts(&world).await, []);
}

#[tokio::test]
async fn a_used_serial_is_refused() {
    let (_world, client) = written(&["1"]).await;
    let refused = refusal(client.write(None, body(1, "other")).await);
    assert_eq!(refused, PushRefusal::SerialTaken { serial: 1 });
}

#[tokio::test]
async fn an_earlier_serial_is_refused() {
    let (_world, client) = written(&["1", "2"]).await;
    let refused = refusal(client.write(None, body(1, "1")).await);
    assert_eq!(refused, PushRefusal::SerialBehind { serial: 1, head: 2 });
}

#[tokio::test]
async fn another_lineage_is_refused() {
    let (_world, client) = written(&["1"]).await;
    let refused = refusal(client.write(None, other(2, "2")).await);
    assert!(
        matches!(refused, PushRefusal::OtherLineage { .. }),
        "{refused}"
    );
}

#[tokio::test]
async fn bytes_that_are_no_state_are_refused() {
    let (_world, client) = written(&["1"]).await;
    let refused = client.write(None, b"[]".to_vec()).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "this cannot be a version of state `demo/a`"
    );
}

#[tokio::test]
async fn a_refused_write_is_listed_with_its_reason_and_its_body() {
    let (world, client) = written(&["1", "2"]).await;
    client.write(None, body(1, "late")).await.unwrap_err();
    let refused = refusals(&world).await;
    assert_eq!(refused[0].method, "POST");
    assert!(
        refused[0]
            .reason
            .contains("serial 1 is behind the head's 2"),
        "{}",
        refused[0].reason
    );
    assert!(refused[0].kept.is_some());
}

#[tokio::test]
async fn a_refused_lock_is_listed_with_the_name_of_the_token() {
    let (world, client) = written(&["1"]).await;
    client.lock(&lock("x")).await.unwrap();
    second(&world).await.lock(&lock("y")).await.unwrap_err();
    let refused = refusals(&world).await;
    assert_eq!(
        (refused[0].method.as_str(), refused[0].lock_id.as_deref()),
        ("LOCK", Some("y"))
    );
    assert!(
        refused[0].reason.starts_with("token `second`: "),
        "{}",
        refused[0].reason
    );
}

#[tokio::test]
async fn a_token_for_reading_writes_nothing() {
    let (world, _) = written(&["1"]).await;
    let reader = client(&world, "reader", TokenScope::Read).await;
    let refused = reader.write(None, body(2, "2")).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "token `reader` may not do this: its scope is `read`"
    );
    assert_eq!(
        refusals(&world).await[0].reason,
        "token `reader`: its scope is `read`"
    );
}

#[tokio::test]
async fn a_token_for_other_states_reads_nothing_here() {
    let (world, _) = written(&["1"]).await;
    let outsider = client_of(&world, "shop", TokenScope::Surgery, "shop/*").await;
    let refused = outsider.read().await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "token `shop` may not do this: it reaches other states"
    );
}

/// A push of an older state, as `state push -force` of an engine sends it.
async fn force(world: &World, scope: TokenScope) -> Result<WriteOutcome, StateAccessError> {
    let client = client(world, "forcing", scope).await;
    let mut info = lock("s");
    "state-push".clone_into(&mut info.operation);
    client.lock(&info).await?;
    client.write(Some("s".to_owned()), body(1, "forced")).await
}

#[tokio::test]
async fn a_token_for_surgery_forces_an_older_state_on_the_record() {
    let (world, _) = written(&["1", "2"]).await;
    force(&world, TokenScope::Surgery).await.unwrap();
    let head = world.head("a").await.unwrap();
    assert_eq!((head.serial, head.mark), (1, Some(VersionMark::Forced)));
    assert_eq!(
        open_acts(&world).await[0].act,
        BreakGlassAction::StatePushed
    );
}

#[tokio::test]
async fn a_token_for_writing_forces_nothing() {
    let (world, _) = written(&["1", "2"]).await;
    let refused = refusal(force(&world, TokenScope::Write).await);
    assert_eq!(refused, PushRefusal::SerialBehind { serial: 1, head: 2 });
}

#[tokio::test]
async fn a_deleted_state_is_gone_for_clients_and_its_versions_stay() {
    let (world, client) = written(&["1"]).await;
    client.delete(None).await.unwrap();
    assert!(client.read().await.unwrap().is_none());
    let kept = queries::read(&world.control, &a(&world), Some(1))
        .await
        .unwrap();
    assert_eq!(kept.1, body(1, "1"));
}

#[tokio::test]
async fn a_state_is_not_deleted_under_the_lock_of_another_client() {
    let (world, client) = written(&["1"]).await;
    client.lock(&lock("x")).await.unwrap();
    let refused = second(&world).await.delete(None).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "state `demo/a` is locked by bob@laptop (apply), lock `x`"
    );
    assert_eq!(refusals(&world).await[0].method, "DELETE");
}

#[tokio::test]
async fn a_state_is_deleted_under_the_lock_of_its_own_client() {
    let (_world, client) = written(&["1"]).await;
    client.lock(&lock("x")).await.unwrap();
    client.delete(Some("x")).await.unwrap();
    assert!(client.read().await.unwrap().is_none());
}

#[tokio::test]
async fn a_lineage_that_was_deleted_does_not_use_its_serials_again() {
    let (_world, client) = written(&["1", "2"]).await;
    client.delete(None).await.unwrap();
    let refused = refusal(client.write(None, body(1, "new")).await);
    assert_eq!(refused, PushRefusal::SerialUsed { serial: 1, last: 2 });
    client.write(None, other(1, "new")).await.unwrap();
}

#[tokio::test]
async fn a_client_continues_what_a_run_wrote() {
    let mut world = World::single().await;
    world.auto_apply(&[]).await;
    let client = client(&world, "ci", TokenScope::Write).await;
    let (_, bytes) = client.read().await.unwrap().unwrap();
    let next = String::from_utf8_lossy(&bytes).replace(r#""serial":1"#, r#""serial":2"#);
    client
        .write(
            None,
            next.replace(r#""value":"1""#, r#""value":"0""#)
                .into_bytes(),
        )
        .await
        .unwrap();
    let set = world.auto_apply(&[]).await;
    assert_eq!(world.summary(set).await, "finished: a applied");
    assert_eq!(value(&world).await, "1");
}
